"""Limits on what a node's report can claim, whoever signed it: no attempt or time that the machine has not reached.
Pure.

The latest report of a node counts, so one from the future would outrank every later one for ever. A count of attempts
grows by one with each start of the node's program, which takes longer than a second. A node that lost its record of
them continues from the time of day, in seconds.
"""

from __future__ import annotations

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.core.records.facts import NodeFacts, Preparation

CLOCK_SECONDS = 300.0  # by which the clock of a node or a coordinator may be ahead of EventBridge's
NOTICE_AHEAD_SECONDS = 3600.0  # no notice that a node can read is given longer before
FORMER_ATTEMPTS = 1000  # from before the machine's last start


def impossible_claim(report: NodeReport, sent: float) -> str:
    """Why a report that was sent at `sent` cannot be true; "" where it can."""
    latest = sent + CLOCK_SECONDS
    if not report.at <= latest:
        return "at: the report is from the future; look at the node's clock"
    if report.deadline is not None and not report.deadline <= report.at + NOTICE_AHEAD_SECONDS:
        return "deadline: no notice is given so long before"
    if report.attempt > latest:
        return "attempt: there cannot have been so many"
    return ""


def unlikely_claim(known_facts: NodeFacts, report: Preparation) -> str:
    """Why the report cannot come from the machine with the facts `known`; "" where it can."""
    state_read = known_facts.state_read
    launched = max(known_facts.started_at, state_read.launched_at or 0.0 if state_read is not None else 0.0)
    if not launched or report.at < launched:  # of an earlier life, which says nothing of this one
        return ""
    if report.attempt <= FORMER_ATTEMPTS + report.at - launched or report.attempt >= launched - CLOCK_SECONDS:
        return ""
    return "attempt: there cannot have been so many since the instance was launched"
