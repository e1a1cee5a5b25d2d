"""Choose (nominate) the base node that is to run the coordinator. Pure.

A nominated base node starts a coordinator only while no other coordinator answers the node
(`dyntrain.node_bootstrap.supervision.master`). The new coordinator claims the job on the shared volume
(`dyntrain.training.coordinator.terms`). A nomination therefore has no effect if the old coordinator still runs and only
the coordinator's reports are lost.
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
    """Why a node was nominated to run the coordinator, or why the last nomination stays valid."""

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
    """A nominated node. `term` is the number of the nomination: the time in whole seconds or the last term plus one,
    whichever is greater. In term 0 no node has been nominated yet, and the node tagged as master starts the
    coordinator.
    """

    coordinator: str | None  # id of the nominated instance; None: no node
    term: int  # the number of the nomination
    reason: NominationReason


_REASONS_OF_LOST_MACHINES = (Reason.STOPPED, Reason.GROUP_TERMINATES, Reason.UNKNOWN_TO_EC2, Reason.TERMINATE_ISSUED)


def nominate(
    old: Membership, views: Iterable[View], job_facts: JobFacts | None, rules: Rules, now: float
) -> Nomination:
    base_nodes = _ordered_base_nodes(old, views)
    candidates = [node for node in base_nodes if node.prepared and not _cannot_serve(node)]
    reason, chosen_instance = _choose_coordinator(old, base_nodes, candidates, job_facts, rules, now)
    if chosen_instance == old.coordinator:
        return Nomination(old.coordinator, old.term, reason)
    return Nomination(chosen_instance, max(old.term + 1, int(now)), reason)


def unchanged_nomination(old: Membership) -> Nomination:
    return Nomination(old.coordinator, old.term, NominationReason.CLOSED)


def with_nomination(old: Membership, new: Membership, nomination: Nomination) -> Membership:
    """The membership `new`, changed so that it contains the nomination. If only the nomination differs from the
    membership `old`, the revision grows by one.
    """
    if (nomination.coordinator, nomination.term) == (new.coordinator, new.term):
        return new
    revision = old.revision + 1 if new is old else new.revision
    return new.model_copy(update={"coordinator": nomination.coordinator, "term": nomination.term, "revision": revision})


def _choose_coordinator(
    old: Membership,
    base_nodes: Sequence[View],
    candidates: Sequence[View],
    job_facts: JobFacts | None,
    rules: Rules,
    now: float,
) -> tuple[NominationReason, str | None]:
    silence_limit_seconds = rules.policy.takeover_seconds
    if old.term == 0:
        return _first_choice(base_nodes, candidates, silence_limit_seconds, now)
    if old.coordinator is None:
        return (
            (NominationReason.MACHINE_LOST, candidates[0].instance) if candidates else (NominationReason.NOBODY, None)
        )
    nominated_node = next((node for node in base_nodes if node.instance == old.coordinator), None)
    if nominated_node is None or _cannot_serve(nominated_node):
        return (
            (NominationReason.MACHINE_LOST, candidates[0].instance) if candidates else (NominationReason.NOBODY, None)
        )
    job_has_ended = job_facts is not None and job_facts.report.state in ("finished", "failed")
    if job_facts is None or job_has_ended or now - max(job_facts.heard_at, old.term) <= silence_limit_seconds:
        return NominationReason.STANDS, old.coordinator
    nominated_index = base_nodes.index(nominated_node)
    successors = [
        node for node in (*base_nodes[nominated_index + 1 :], *base_nodes[:nominated_index]) if node in candidates
    ]
    return (
        (NominationReason.SILENT, successors[0].instance) if successors else (NominationReason.STANDS, old.coordinator)
    )


def _first_choice(
    base_nodes: Sequence[View], candidates: Sequence[View], silence_limit: float, now: float
) -> tuple[NominationReason, str | None]:
    """The node of the first nomination: if possible, the node that is tagged as master. Other base nodes are not
    nominated while the master is still being prepared, even if their own preparation has ended.
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
    """The base nodes in this order: the tagged master, the members in the target's order, and then all other base nodes
    by the time of their preparation.
    """
    member_index = {instance_id: index for index, instance_id in enumerate(old.members)}

    def sort_key(node: View) -> tuple[bool, float, float, str]:
        prepared_at = node.preparation.at if node.preparation is not None else float("inf")
        return (not node.master, member_index.get(node.instance, float("inf")), prepared_at, node.instance)

    return sorted((node for node in views if node.base), key=sort_key)


def _cannot_serve(node: View) -> bool:
    preparation_failed = node.preparation is not None and node.preparation.outcome == "prepare_failed"
    return node.terminated or preparation_failed or node.leave_reason in _REASONS_OF_LOST_MACHINES
