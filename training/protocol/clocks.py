"""All time limits of coordinator, nodes and workers, derived from two options.

`--liveness-seconds` says after how long a silent process counts as hung, and `--progress-seconds` after how long a live
process without progress counts as stuck. `spread` distributes the retries of many processes over time.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_LIVENESS = 2.0  # minimum of --liveness-seconds
LEAST_RATIO = 3.0  # minimum of --progress-seconds divided by --liveness-seconds
LEAST_SPEED = 50e6  # minimum speed of a large state from storage or another node, in bytes per second (0.4 Gb/s)


@dataclass(frozen=True)
class Clocks:
    """Time limits in seconds. Raises ValueError, with a message for the command line, for limits that are too short.

    `liveness`: after so long without an answer to a ping, a process counts as hung, and its connection is closed.
    `progress`: after so long without a step or a boundary of any worker, a job counts as stuck.
    """

    liveness: float = 20.0  # --liveness-seconds
    progress: float = 600.0  # --progress-seconds

    def __post_init__(self) -> None:
        if not self.liveness >= SHORTEST_LIVENESS:
            raise ValueError(
                f"--liveness-seconds {self.liveness:g}: must be at least {SHORTEST_LIVENESS:g}, which leaves half "
                "a second between two pings"
            )
        if not self.progress >= LEAST_RATIO * self.liveness:
            raise ValueError(
                f"--progress-seconds {self.progress:g}: must be at least {LEAST_RATIO:g} times --liveness-seconds "
                f"({self.liveness:g}), "
                "otherwise a hung process would count as a slow one"
            )

    @property
    def ping(self) -> float:
        """Interval between pings of a connection, from either end."""
        return self.liveness / 4

    @property
    def pong(self) -> float:
        """Limit for the answer to a ping."""
        return self.liveness * 3 / 4

    @property
    def reconnect(self) -> float:
        """Time after which a disconnected worker counts as lost, if its supervisor does not report its end."""
        return self.liveness * 0.15

    @property
    def blocked(self) -> float:
        """Time for a given-up worker to end: its training thread may be stuck inside ps-lite."""
        return self.liveness / 2

    @property
    def start(self) -> float:
        """Limit from a worker's start to its first connection, including imports, model and data."""
        return self.progress

    @property
    def patience(self) -> float:
        """How long workers look for a coordinator, and how long a coordinator waits for missing workers."""
        return 3 * self.liveness

    @property
    def release(self) -> float:
        """Limit from a loss until all surviving workers are free; after the limit the survivors are restarted."""
        return self.liveness / 2

    @property
    def formation(self) -> float:
        """Limit until all members are prepared, and again until all have joined, including the state's transfer."""
        return max(self.progress / 10, self.liveness)  # long enough to detect a hung process

    @property
    def boundary(self) -> float:
        """How long the first worker at a boundary waits for the last worker, including validation at an epoch's end."""
        return self.progress


DEFAULT = Clocks()


def spread(delay: float, chance: float, share: float = 0.2) -> float:
    """Lengthen or shorten `delay` by at most the fraction `share`. `chance` is the caller's random number in [0, 1)."""
    return delay * (1.0 + share * (2.0 * chance - 1.0))
