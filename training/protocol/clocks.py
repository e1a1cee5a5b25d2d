"""All bounds on waiting, the coordinator's, the nodes' and the workers', derived from two options: how soon a silent
process counts as hung, and how long a living one may take. And how those who try again keep out of each other's way.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_LIVENESS = 2.0
LEAST_RATIO = 3.0
# Bytes a second at which a large state comes from storage or another node, at the least: 0.4 Gb/s.
LEAST_SPEED = 50e6


@dataclass(frozen=True)
class Clocks:
    """Seconds. Raises ValueError, in the words of the command line's options, when the two do not go together."""

    liveness: float = (
        20.0  # without an answer to pings for so long, a process counts as hung and its connection is closed
    )
    progress: float = 600.0  # without a step or a boundary of anybody for so long, a living job counts as stuck

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
                "else a process that hangs would count as one that is slow"
            )

    @property
    def ping(self) -> float:
        """Between two pings of a connection, from either end."""
        return self.liveness / 4

    @property
    def pong(self) -> float:
        """For the answer to a ping."""
        return self.liveness * 3 / 4

    @property
    def reconnect(self) -> float:
        """How long a worker may be without a connection before it counts as lost: its process's end would be told by
        its supervisor.
        """
        return self.liveness * 0.15

    @property
    def blocked(self) -> float:
        """From the word that a worker is given up to its end: a training thread inside ps-lite never hears it."""
        return self.liveness / 2

    @property
    def start(self) -> float:
        """From a worker's start to its first connection: its imports, its model and its data are in it."""
        return self.progress

    @property
    def patience(self) -> float:
        """How long workers look for a coordinator, a coordinator that came back waits for workers, and a start for
        those who are missing.
        """
        return 3 * self.liveness

    @property
    def release(self) -> float:
        """From a loss to the last survivor's freedom; then their processes are restarted."""
        return self.liveness / 2

    @property
    def formation(self) -> float:
        """From the order to prepare to the last "prepared", and from there to the last "formed": the state's way to
        joiners is in it.
        """
        return max(self.progress / 10, self.liveness)  # never sooner than a process could be known to hang

    @property
    def boundary(self) -> float:
        """How long the first at a boundary waits for the last: validation at an epoch's end is in it."""
        return self.progress


DEFAULT = Clocks()


def spread(delay: float, chance: float, share: float = 0.2) -> float:
    """`delay` changed by up to `share` either way; `chance` in [0, 1) is the caller's random number."""
    return delay * (1.0 + share * (2.0 * chance - 1.0))
