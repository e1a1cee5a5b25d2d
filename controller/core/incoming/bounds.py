"""Refuse a node's report, even a signed report, if the machine cannot have reached the reported time or number of
attempts. Pure.

A report with a time in the future would hide the node's later reports, because only the report with the latest time is
used. The number of attempts grows by one with each start of the node's program. Each start of the program takes longer
than a second, which limits the number of attempts. A node that loses its record of attempts uses the present time in
seconds as the number of the next attempt.
"""

from __future__ import annotations

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.core.records.facts import NodeFacts, Preparation

CLOCK_SECONDS = 300.0  # how far the clock of a node or a coordinator may be ahead of EventBridge's clock
MAX_NOTICE_SECONDS = 3600.0  # no notice on a node has a later deadline
FORMER_ATTEMPTS = 1000  # limit of attempts before the machine's last start


def impossible_claim(report: NodeReport, sent: float) -> str:
    """Why a node's report that was sent at the time `sent` cannot be true. Returns "" if the report can be true."""
    latest_possible_time = sent + CLOCK_SECONDS
    if not report.at <= latest_possible_time:
        return "at: the report is from the future; look at the node's clock"
    if report.deadline is not None and not report.deadline <= report.at + MAX_NOTICE_SECONDS:
        return "deadline: notices do not come so long before their deadline"
    if report.attempt > latest_possible_time:
        return "attempt: the number is impossibly high"
    return ""


def unlikely_claim(known_facts: NodeFacts, report: Preparation) -> str:
    """Why the report cannot come from the machine that `known_facts` describe. Returns "" if the report can come from
    this machine.
    """
    state_read = known_facts.state_read
    started_at = max(known_facts.started_at, state_read.launched_at or 0.0 if state_read is not None else 0.0)
    if not started_at or report.at < started_at:  # the report is older than the machine's last start
        return ""
    if report.attempt <= FORMER_ATTEMPTS + report.at - started_at or report.attempt >= started_at - CLOCK_SECONDS:
        return ""
    return "attempt: the number is impossibly high for the time since the instance was launched"
