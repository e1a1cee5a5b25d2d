"""Defines the pauses before retries, and all other intervals and time limits of a node's program. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backoff:
    """Growing pauses between retries: each pause is twice the previous one, up to a limit."""

    first: float  # the first pause, in seconds
    limit: float  # the longest pause, in seconds

    def delay(self, tries: int) -> float:
        """Return the pause in seconds after `tries` earlier pauses; no number of tries causes an overflow."""
        return min(self.limit, self.first * 2.0 ** min(tries, 32))


# Parameter Store answers 40 requests per second and account (docs.aws.amazon.com/general/latest/gr/ssm.html). The nodes
# of a cluster without a coordinator make 10 of them: these 8, and 2 for four base nodes, which check every
# `nomination_check_seconds` whether they are nominated.
REQUESTS_PER_SECOND = 8.0


def request_period(nodes: int, longest: float | None = None) -> float:
    """Return the pause in seconds, at most `longest`, between two requests of a node to Parameter Store.

    The pause keeps all `nodes` nodes together below the limit of Parameter Store's requests per second.
    """
    period_seconds = nodes / REQUESTS_PER_SECOND
    return period_seconds if longest is None else min(period_seconds, longest)


def seconds_until_request(now: float, period: float, share: float) -> float:
    """Return the seconds from `now` until a node's next request, due at the fraction `share` of each period."""
    return (share * period - now) % period if period > 0 else 0.0


@dataclass(frozen=True)
class Timing:
    """All time limits and pauses of a node, in seconds, and its maximum numbers of tries."""

    metadata_tries: int = 8  # tries of a request to the instance metadata service
    metadata_timeout_seconds: float = 2.0  # time limit of one try
    metadata_backoff: Backoff = field(default=Backoff(0.25, 5.0))
    setup_tries: int = 40  # about ten minutes: the stack may still be writing parameters or mounting the volume
    setup_backoff: Backoff = field(default=Backoff(0.5, 20.0))
    prepare_backoff: Backoff = field(default=Backoff(1.0, 60.0))  # between runs of prepare-data
    report_backoff: Backoff = field(default=Backoff(2.0, 60.0))  # between repetitions of a report to the controller
    connection_backoff: Backoff = field(default=Backoff(0.5, 5.0))  # between connections to the coordinator
    refusal_backoff: Backoff = field(default=Backoff(2.0, 30.0))  # between connections that the coordinator refuses
    # between queries whether the controller wants the node, while its worker is stopped for lack of a coordinator
    controller_query_backoff: Backoff = field(default=Backoff(2.0, 30.0))
    own_restart_backoff: Backoff = field(default=Backoff(1.0, 30.0))  # before restarts of a worker without an order
    max_own_restarts: int = 5  # restarts of a worker without an order, within `restart_window_seconds`
    restart_window_seconds: float = 600.0  # period for which `max_own_restarts` limits the restarts
    restart_order_seconds: float = 600.0  # wait of a crashed worker for a restart order; a slow volume may delay it
    coordinator_backoff: Backoff = field(default=Backoff(0.5, 30.0))  # before a crashed coordinator is restarted
    coordinator_steady_seconds: float = 60.0  # a coordinator that ran this long resets `coordinator_backoff`
    coordinator_exit_seconds: float = 30.0  # a retiring node stops a coordinator that has not ended by then
    spare_delay_seconds: float = 3.0  # before a warm spare is started, so that the worker gets the processor first
    spare_start_seconds: float = 600.0  # a spare that has built no model by then is restarted with twice this limit
    nomination_check_seconds: float = 2.0  # how often a base node without a coordinator checks whether it is nominated
    group_formation_seconds: float = 2.0  # longest wait before used blanks are replaced, so that forks delay no group
    blank_backoff: Backoff = field(default=Backoff(1.0, 30.0))  # before a failed idle process (blank) is replaced
    blank_start_seconds: float = (
        120.0  # a fork server that has not forked by then is restarted; includes MXNet's import
    )
    notice_poll_seconds: float = 5.0  # between reads of EC2's interruption notices
    sign_of_life_seconds: float = 300.0  # between reports while a node prepares: a third of the launch hook's timeout
    script_check_seconds: float = 20.0  # how often a base node checks whether prepare-data has changed
    watchdog_beat_seconds: float = 15.0  # between messages to systemd's watchdog: a quarter of WatchdogSec
    log_check_seconds: float = 5.0  # between checks of the log files' sizes
    finish_seconds: float = 120.0  # how long a training script may run after it has left the job, to save its model
    retire_grace_seconds: float = 5.0  # between SIGTERM and SIGKILL for a retiring worker
    node_stop_grace_seconds: float = (
        3.0  # from SIGTERM to SIGKILL when the node stops: EC2 and systemd do not wait long
    )
