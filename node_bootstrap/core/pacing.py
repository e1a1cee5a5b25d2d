"""How long to wait before the next try, and every interval of the node in one place. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backoff:
    """Doubling delays from `first` to `limit` seconds."""

    first: float
    limit: float

    def delay(self, tries: int) -> float:
        """The pause after `tries` earlier pauses (0: the first). Never overflows, however many tries."""
        return min(self.limit, self.first * 2.0 ** min(tries, 32))


# Of the 10 requests that the nodes of one cluster without a coordinator make of Parameter Store in a second, of the 40
# that it answers a whole account (docs.aws.amazon.com/general/latest/gr/ssm.html); 2 are for four base nodes, which
# look for their nomination every `succession` seconds.
REQUESTS_PER_SECOND = 8.0


def period(nodes: int, longest: float | None = None) -> float:
    """Seconds in which each of the cluster's nodes has one turn to ask; `longest`: at most this many, for the few on
    whom the others wait.
    """
    seconds = nodes / REQUESTS_PER_SECOND
    return seconds if longest is None else min(seconds, longest)


def until_turn(now: float, period: float, share: float) -> float:
    """Seconds from `now` (of a clock that the nodes have in common) to the turn at `share` (0 to 1) of each period."""
    return (share * period - now) % period if period > 0 else 0.0


@dataclass(frozen=True)
class Timing:
    """Seconds, except where a name says tries."""

    metadata_tries: int = 8
    metadata_timeout: float = 2.0
    metadata: Backoff = field(default=Backoff(0.25, 5.0))
    setup_tries: int = 40  # about ten minutes: the stack may still be writing parameters or mounting the volume
    setup: Backoff = field(default=Backoff(0.5, 20.0))
    prepare: Backoff = field(default=Backoff(1.0, 60.0))
    report: Backoff = field(default=Backoff(2.0, 60.0))
    endpoint: Backoff = field(default=Backoff(0.5, 5.0))
    refused: Backoff = field(default=Backoff(2.0, 30.0))
    # between questions to the controller while the worker is stopped for want of a coordinator
    ask: Backoff = field(default=Backoff(2.0, 30.0))
    own_restart: Backoff = field(default=Backoff(1.0, 30.0))
    restart_budget: int = 5
    restart_window: float = 600.0
    # How long a crashed worker waits for the word of a coordinator that is there; a shared volume may hold it up.
    order: float = 600.0
    coordinator: Backoff = field(default=Backoff(0.5, 30.0))
    coordinator_steady: float = 60.0  # a coordinator that lived this long starts its backoff anew
    coordinator_exit: float = 30.0
    spare: float = 3.0  # before a warm spare is started: what it replaces gets the processor first
    spare_start: float = (
        600.0  # a spare that has not built its model after this hangs and is started again, with twice as much time
    )
    succession: float = 2.0  # how often a base node without a coordinator looks whether it is nominated
    # blanks that were used are replaced when the new group stands, at the latest after this: forks would slow it down
    formation: float = 2.0
    blank: Backoff = field(default=Backoff(1.0, 30.0))
    blank_start: float = (
        120.0  # a fork server that has not answered after this, import of MXNet included, is started again
    )
    notices: float = 5.0
    alive: float = 300.0  # between signs of life of a node that prepares: a third of what its launch hook waits
    script: float = 20.0  # how often a base node looks whether prepare-data is another one
    beat: float = 15.0  # of the unit's WatchdogSec a fourth
    logs: float = 5.0  # between looks at how long the logs are
    finish: float = 120.0  # for the script's own last lines, such as saving the model, once it has left the job
    grace: float = 5.0  # SIGTERM to SIGKILL of a retiring worker
    stop_grace: float = 3.0  # the same when the whole node stops: EC2 and systemd do not wait long
