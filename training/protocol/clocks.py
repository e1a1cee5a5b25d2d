"""All time limits of coordinator, nodes and workers, derived from two options.

`--liveness-seconds` is the time after which a process that does not answer is treated as hung. `--progress-seconds` is
the time after which a live process without progress is treated as stuck. `spread` distributes the retries of many
processes over time.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_LIVENESS = 2.0  # minimum of --liveness-seconds
LEAST_RATIO = 3.0  # minimum of --progress-seconds divided by --liveness-seconds
LEAST_SPEED = 50e6  # minimum speed of a large state from storage or another node, in bytes per second (0.4 Gb/s)


@dataclass(frozen=True)
class Clocks:
    """All time limits of coordinator, nodes and workers, in seconds.

    Raises ValueError, with a message for the command line, if a limit is too short. `liveness` is the time without an
    answer to a ping after which a process is treated as hung, and its connection is closed. `progress` is the time
    without a step or a boundary of any worker after which a job is treated as stuck.
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
    def ping_interval(self) -> float:
        """Interval between pings on a connection; both ends send pings."""
        return self.liveness / 4

    @property
    def pong_limit(self) -> float:
        """Time limit for the answer to a ping."""
        return self.liveness * 3 / 4

    @property
    def reconnect_limit(self) -> float:
        """Time after which a disconnected worker is treated as lost, unless its supervisor reports its end earlier."""
        return self.liveness * 0.15

    @property
    def exit_limit(self) -> float:
        """Time that a worker which was given up has to exit; its training thread may be stuck inside ps-lite."""
        return self.liveness / 2

    @property
    def start_limit(self) -> float:
        """Time limit from a worker's start to its first connection, including imports, model and data."""
        return self.progress

    @property
    def patience(self) -> float:
        """How long workers try to reach a coordinator, and how long a coordinator waits for missing workers."""
        return 3 * self.liveness

    @property
    def release_limit(self) -> float:
        """Time limit for freeing all surviving workers after a loss; after this time the survivors are restarted."""
        return self.liveness / 2

    @property
    def formation_limit(self) -> float:
        """Time limit for each of two phases of a formation: all members prepare, then all members join.

        The first phase includes the transfer of the state.
        """
        return max(self.progress / 10, self.liveness)  # long enough to detect a hung process

    @property
    def boundary_limit(self) -> float:
        """How long the first worker at a boundary waits for the last worker.

        The waiting time includes a validation at an epoch's end.
        """
        return self.progress


DEFAULT = Clocks()  # the limits if both options are left out


def spread(delay: float, chance: float, share: float = 0.2) -> float:
    """Lengthen or shorten `delay` by at most the fraction `share`. `chance` is the caller's random number in [0, 1)."""
    return delay * (1.0 + share * (2.0 * chance - 1.0))
