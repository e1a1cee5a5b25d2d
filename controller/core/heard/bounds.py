"""What a node's report cannot say, whoever signed it: an attempt or a time that this machine has not come to. Pure.

The latest word of a node counts, so one from the future would outrank every later one for ever. A count of attempts
grows by one with each start of the node's program, which takes longer than a second. A node whose record of them was
lost goes on from the time of day, in seconds.
"""

from __future__ import annotations

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.core.known.facts import NodeFacts, Preparation

CLOCK_SECONDS = 300.0  # by which the clock of a node or a coordinator may be ahead of EventBridge's
NOTICE_AHEAD_SECONDS = 3600.0  # no notice that a node can read is given longer before
FORMER_ATTEMPTS = 1000  # from before the machine's last start


def impossible(report: NodeReport, sent: float) -> str:
    """Why a report that was sent at `sent` cannot be true; empty where it can."""
    latest = sent + CLOCK_SECONDS
    if not report.at <= latest:
        return "at: the report is from the future; look at the node's clock"
    if report.deadline is not None and not report.deadline <= report.at + NOTICE_AHEAD_SECONDS:
        return "deadline: no notice is given so long before"
    if report.attempt > latest:
        return "attempt: there cannot have been so many"
    return ""


def unlikely(known: NodeFacts, report: Preparation) -> str:
    """Why the word of a machine of which this is `known` cannot be its own; empty where it can."""
    read = known.state_read
    launched = max(known.started_at, read.launched_at or 0.0 if read is not None else 0.0)
    if not launched or report.at < launched:  # of an earlier life, which says nothing of this one
        return ""
    if report.attempt <= FORMER_ATTEMPTS + report.at - launched or report.attempt >= launched - CLOCK_SECONDS:
        return ""
    return "attempt: there cannot have been so many since the instance was launched"
