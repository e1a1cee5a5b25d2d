"""Pauses before retries, and all intervals of the node in one place. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backoff:
    """Doubling delays from `first` to `limit` seconds."""

    first: float
    limit: float

    def delay(self, tries: int) -> float:
        """Return the pause that follows `tries` earlier pauses, without overflow for any number."""
        return min(self.limit, self.first * 2.0 ** min(tries, 32))


# Parameter Store answers 40 requests per second and account (docs.aws.amazon.com/general/latest/gr/ssm.html). The nodes
# of a cluster without a coordinator make 10 of them: these 8, and 2 for four base nodes, which check every `succession`
# seconds whether they are nominated.
REQUESTS_PER_SECOND = 8.0


def period(nodes: int, longest: float | None = None) -> float:
    """Return the seconds in which each of `nodes` may make one request; base nodes set the limit `longest`."""
    seconds = nodes / REQUESTS_PER_SECOND
    return seconds if longest is None else min(seconds, longest)


def until_turn(now: float, period: float, share: float) -> float:
    """Return the seconds from `now` to the next turn, which is at the fraction `share` of each period."""
    return (share * period - now) % period if period > 0 else 0.0


@dataclass(frozen=True)
class Timing:
    """All intervals of a node, in seconds; fields whose names end in `tries` are counts."""

    metadata_tries: int = 8
    metadata_timeout: float = 2.0
    metadata: Backoff = field(default=Backoff(0.25, 5.0))
    setup_tries: int = 40  # about ten minutes: the stack may still be writing parameters or mounting the volume
    setup: Backoff = field(default=Backoff(0.5, 20.0))
    prepare: Backoff = field(default=Backoff(1.0, 60.0))
    report: Backoff = field(default=Backoff(2.0, 60.0))
    endpoint: Backoff = field(default=Backoff(0.5, 5.0))
    refused: Backoff = field(default=Backoff(2.0, 30.0))
    # between questions to the controller while the worker is stopped for lack of a coordinator
    ask: Backoff = field(default=Backoff(2.0, 30.0))
    own_restart: Backoff = field(default=Backoff(1.0, 30.0))
    restart_budget: int = 5
    restart_window: float = 600.0
    # How long a crashed worker waits for a connected coordinator's restart order, which a slow volume may delay.
    order: float = 600.0
    coordinator: Backoff = field(default=Backoff(0.5, 30.0))
    coordinator_steady: float = 60.0  # a coordinator that ran this long resets its backoff
    coordinator_exit: float = 30.0
    spare: float = 3.0  # before a warm spare is started, so that the worker gets the processor first
    spare_start: float = 600.0  # a spare without a built model after this time is restarted with twice the limit
    succession: float = 2.0  # how often a base node without a coordinator checks whether it is nominated
    # longest wait before used blank processes are replaced: forks would slow down the formation of a group
    formation: float = 2.0
    blank: Backoff = field(default=Backoff(1.0, 30.0))
    blank_start: float = (
        120.0  # a fork server without an answer after this time, import of MXNet included, is restarted
    )
    notices: float = 5.0
    alive: float = 300.0  # between signs of life of a preparing node: a third of the launch hook's timeout
    script: float = 20.0  # how often a base node checks whether prepare-data has changed
    beat: float = 15.0  # a quarter of the unit's WatchdogSec
    logs: float = 5.0  # between checks of the logs' sizes
    finish: float = 120.0  # for the script's last statements after it has left the job, such as saving the model
    grace: float = 5.0  # SIGTERM to SIGKILL of a retiring worker
    stop_grace: float = 3.0  # SIGTERM to SIGKILL when the whole node stops: EC2 and systemd do not wait long
