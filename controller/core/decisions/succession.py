"""Nominate the base node that runs the coordinator. Pure.

The controller nominates, and the nominated node claims the job on the shared volume once it has no coordinator itself
(`dyntrain.node_bootstrap.supervision.master`, `dyntrain.training.coordinator.terms`). So one nomination too many, while
reports are lost, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View


class NominationReason(StrEnum):
    """Why the coordinator's node was nominated, or kept."""

    STANDS = "the nominated node is there"
    WAITS_FOR_MASTER = "the node that is tagged as master is not prepared yet"
    FIRST = "the node that is tagged as master is prepared"
    NO_MASTER = "no node is tagged as master, or it cannot be prepared"
    MACHINE_LOST = "the machine of the coordinator is gone, going or cannot be prepared"
    SILENT = "the coordinator has been silent for longer than takeover_seconds"
    CLOSED = "the cluster is closed, or is being closed: the nomination stays as it was"
    NOBODY = "no base node is left that could run the coordinator"


@dataclass(frozen=True)
class Nomination:
    """A nominated node. `term` grows with each nomination: its time in whole seconds, or one more than the last. Term
    0: nobody was ever nominated, and the node tagged as master starts.
    """

    coordinator: str | None
    term: int
    reason: NominationReason


_TAKEN = (Reason.STOPPED, Reason.GROUP_TERMINATES, Reason.UNKNOWN_TO_EC2, Reason.TERMINATE_ISSUED)


def nominate(
    old: Membership, views: Iterable[View], job_facts: JobFacts | None, rules: Rules, now: float
) -> Nomination:
    base = _in_order(old, views)
    able = [node for node in base if node.prepared and not _lost(node)]
    reason, choice = _choose(old, base, able, job_facts, rules, now)
    if choice == old.coordinator:
        return Nomination(old.coordinator, old.term, reason)
    return Nomination(choice, max(old.term + 1, int(now)), reason)


def stands(old: Membership) -> Nomination:
    return Nomination(old.coordinator, old.term, NominationReason.CLOSED)


def succeed(old: Membership, new: Membership, nomination: Nomination) -> Membership:
    """`new` with the nomination in it, one revision above `old` if nothing else changed."""
    if (nomination.coordinator, nomination.term) == (new.coordinator, new.term):
        return new
    revision = old.revision + 1 if new is old else new.revision
    return new.model_copy(update={"coordinator": nomination.coordinator, "term": nomination.term, "revision": revision})


def _choose(
    old: Membership, base: Sequence[View], able: Sequence[View], job_facts: JobFacts | None, rules: Rules, now: float
) -> tuple[NominationReason, str | None]:
    patience = rules.policy.takeover_seconds
    if old.term == 0:
        return _first(base, able, patience, now)
    if old.coordinator is None:
        return (NominationReason.MACHINE_LOST, able[0].instance) if able else (NominationReason.NOBODY, None)
    holder = next((node for node in base if node.instance == old.coordinator), None)
    if holder is None or _lost(holder):
        return (NominationReason.MACHINE_LOST, able[0].instance) if able else (NominationReason.NOBODY, None)
    over = job_facts is not None and job_facts.report.state in ("finished", "failed")
    if job_facts is None or over or now - max(job_facts.heard_at, old.term) <= patience:
        return NominationReason.STANDS, old.coordinator
    place = base.index(holder)
    others = [node for node in (*base[place + 1 :], *base[:place]) if node in able]
    return (NominationReason.SILENT, others[0].instance) if others else (NominationReason.STANDS, old.coordinator)


def _first(
    base: Sequence[View], able: Sequence[View], patience: float, now: float
) -> tuple[NominationReason, str | None]:
    """The tagged master, which others wait for: it may prepare its data for longer than they do."""
    if able and able[0].master:
        return NominationReason.FIRST, able[0].instance
    expected = any(node.master and not _lost(node) for node in base)
    waited = any(node.preparation is not None and now - node.preparation.at > patience for node in able)
    return (
        (NominationReason.NO_MASTER, able[0].instance)
        if waited and not expected
        else (NominationReason.WAITS_FOR_MASTER, None)
    )


def _in_order(old: Membership, views: Iterable[View]) -> list[View]:
    """Base nodes: the tagged master first, then in the order of the target, then by the time they were prepared."""
    place = {instance: index for index, instance in enumerate(old.members)}

    def order(node: View) -> tuple[bool, float, float, str]:
        prepared_at = node.preparation.at if node.preparation is not None else float("inf")
        return (not node.master, place.get(node.instance, float("inf")), prepared_at, node.instance)

    return sorted((node for node in views if node.base), key=order)


def _lost(node: View) -> bool:
    failed = node.preparation is not None and node.preparation.outcome == "prepare_failed"
    return node.terminated or failed or node.going in _TAKEN
