"""Nominate the base node that runs the coordinator. Pure.

The nominated node claims the job on the shared volume as soon as the node runs no coordinator itself
(`dyntrain.node_bootstrap.supervision.master`, `dyntrain.training.coordinator.terms`). So a needless nomination, while
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
    """Why a node was nominated to run the coordinator, or why the last nomination stays."""

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
    """A nominated node. `term` grows with each nomination, and is the time in whole seconds or the last term plus one.
    In term 0 no node was ever nominated, and the node tagged as master starts the coordinator.
    """

    coordinator: str | None
    term: int
    reason: NominationReason


_LOST_REASONS = (Reason.STOPPED, Reason.GROUP_TERMINATES, Reason.UNKNOWN_TO_EC2, Reason.TERMINATE_ISSUED)


def nominate(
    old: Membership, views: Iterable[View], job_facts: JobFacts | None, rules: Rules, now: float
) -> Nomination:
    base_nodes = _ordered_base_nodes(old, views)
    candidates = [node for node in base_nodes if node.prepared and not _cannot_serve(node)]
    reason, choice = _choose(old, base_nodes, candidates, job_facts, rules, now)
    if choice == old.coordinator:
        return Nomination(old.coordinator, old.term, reason)
    return Nomination(choice, max(old.term + 1, int(now)), reason)


def unchanged_nomination(old: Membership) -> Nomination:
    return Nomination(old.coordinator, old.term, NominationReason.CLOSED)


def with_nomination(old: Membership, new: Membership, nomination: Nomination) -> Membership:
    """`new` with the nomination. The revision is one above that of `old` if nothing else changed."""
    if (nomination.coordinator, nomination.term) == (new.coordinator, new.term):
        return new
    revision = old.revision + 1 if new is old else new.revision
    return new.model_copy(update={"coordinator": nomination.coordinator, "term": nomination.term, "revision": revision})


def _choose(
    old: Membership,
    base_nodes: Sequence[View],
    candidates: Sequence[View],
    job_facts: JobFacts | None,
    rules: Rules,
    now: float,
) -> tuple[NominationReason, str | None]:
    silence_limit = rules.policy.takeover_seconds
    if old.term == 0:
        return _first_choice(base_nodes, candidates, silence_limit, now)
    if old.coordinator is None:
        return (
            (NominationReason.MACHINE_LOST, candidates[0].instance) if candidates else (NominationReason.NOBODY, None)
        )
    holder = next((node for node in base_nodes if node.instance == old.coordinator), None)
    if holder is None or _cannot_serve(holder):
        return (
            (NominationReason.MACHINE_LOST, candidates[0].instance) if candidates else (NominationReason.NOBODY, None)
        )
    job_over = job_facts is not None and job_facts.report.state in ("finished", "failed")
    if job_facts is None or job_over or now - max(job_facts.heard_at, old.term) <= silence_limit:
        return NominationReason.STANDS, old.coordinator
    holder_index = base_nodes.index(holder)
    successors = [node for node in (*base_nodes[holder_index + 1 :], *base_nodes[:holder_index]) if node in candidates]
    return (
        (NominationReason.SILENT, successors[0].instance) if successors else (NominationReason.STANDS, old.coordinator)
    )


def _first_choice(
    base_nodes: Sequence[View], candidates: Sequence[View], silence_limit: float, now: float
) -> tuple[NominationReason, str | None]:
    """The first node to nominate, which is the tagged master. Other base nodes wait for the master, whose preparation
    may take longer.
    """
    if candidates and candidates[0].master:
        return NominationReason.FIRST, candidates[0].instance
    master_expected = any(node.master and not _cannot_serve(node) for node in base_nodes)
    waited_long = any(node.preparation is not None and now - node.preparation.at > silence_limit for node in candidates)
    return (
        (NominationReason.NO_MASTER, candidates[0].instance)
        if waited_long and not master_expected
        else (NominationReason.WAITS_FOR_MASTER, None)
    )


def _ordered_base_nodes(old: Membership, views: Iterable[View]) -> list[View]:
    """The base nodes in order: the tagged master, then the target's members in their order, then others by the time of
    their preparation.
    """
    place = {instance: index for index, instance in enumerate(old.members)}

    def order(node: View) -> tuple[bool, float, float, str]:
        prepared_at = node.preparation.at if node.preparation is not None else float("inf")
        return (not node.master, place.get(node.instance, float("inf")), prepared_at, node.instance)

    return sorted((node for node in views if node.base), key=order)


def _cannot_serve(node: View) -> bool:
    failed = node.preparation is not None and node.preparation.outcome == "prepare_failed"
    return node.terminated or failed or node.leave_reason in _LOST_REASONS
