"""A node that leaves is called REMOVED, and ended, once the coordinator obeys a target without it: not a moment before,
whatever it leaves for, and not a revision later, for it costs money.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dyntrain.controller.contract.messages import BASE_TAG
from fakes import World, running_cluster
from hypothesis import given, settings
from hypothesis import strategies as st

WAYS: dict[str, Callable[[World, str], object]] = {
    "its tag is removed": lambda world, node: world.hear(world.tag(node, present=False)),
    "spot takes it": lambda world, node: world.hear(
        world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": node})
    ),
    "its worker failed": lambda world, node: world.hear(world.report(node, "worker_failed", reason="crashed")),
}


def joining(**policy: object) -> tuple[World, str, str, str]:
    """A worker that trains, and one that the target lists and the coordinator has not yet heard of."""
    world, master, (worker,) = running_cluster(1, **policy)
    node = world.launch(5)
    world.wait(1)
    world.hear(world.tag(node), world.report(node))
    world.resync()
    assert node in world.target().members
    return world, master, worker, node


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_who_was_dropped_is_removed_at_the_revision_that_dropped_it_and_not_at_the_one_before(
    way: Callable[[World, str], object],
) -> None:
    """The coordinator that obeys an older revision may be taking the node in at this moment."""
    world, master, worker, node = joining()
    listed = world.target().revision
    way(world, node)
    dropped = world.target().revision
    assert dropped == listed + 1
    for obeyed in (listed - 1, listed):
        world.hear(world.job_event(master, worker, revision=obeyed))
        world.resync()
        assert world.standing(node) == ("REMOVAL_QUEUED", "LEAVE_UNCONFIRMED")
        assert (world.mirror(node), world.machines[node].state) == ("REMOVAL_QUEUED", "running")
    world.hear(world.job_event(master, worker, revision=dropped))
    assert (world.mirror(node), world.machines[node].state) == ("REMOVED", "shutting-down")


def test_what_others_do_meanwhile_neither_hastens_nor_delays_it() -> None:
    """The target moves on twice; obeyed is what was asked of this node."""
    world, master, worker, node = joining()
    world.hear(world.tag(node, present=False))
    dropped = world.target().revision
    for number in (6, 7):
        other = world.launch(number)
        world.hear(world.tag(other), world.report(other))
    assert world.target().revision == dropped + 2
    world.hear(world.job_event(master, worker, revision=dropped - 1))
    assert world.status(node) == "REMOVAL_QUEUED"
    world.hear(world.job_event(master, worker, revision=dropped))
    assert (world.status(node), world.machines[node].state) == ("REMOVED", "shutting-down")


def test_who_came_back_and_leaves_again_waits_for_the_second_leave() -> None:
    world, master, worker, node = joining()
    world.hear(world.tag(node, present=False))
    first = world.target().revision
    world.hear(world.tag(node))
    world.hear(world.tag(node, present=False))
    assert world.target().revision == first + 2
    for obeyed in (first, first + 1):
        world.hear(world.job_event(master, worker, revision=obeyed))
        assert (world.status(node), world.machines[node].state) == ("REMOVAL_QUEUED", "running")
    world.hear(world.job_event(master, worker, revision=first + 2))
    assert world.machines[node].state == "shutting-down"


@pytest.mark.parametrize("active", [True, False], ids=["trains", "is being taken in"])
def test_who_is_still_among_the_jobs_members_is_not_ended_whatever_revision_is_obeyed(active: bool) -> None:
    world, master, worker, node = joining()
    world.hear(world.tag(node, present=False))
    now = world.target().revision
    train, form = ([master, worker, node], []) if active else ([master, worker], [node])
    world.hear(world.job_event(*train, forming=form, revision=now))
    world.resync()
    assert world.standing(node) == ("REMOVAL_QUEUED", "LEAVES_AT_BOUNDARY")
    assert world.machines[node].state == "running"
    world.hear(world.job_event(master, worker, revision=now))
    assert world.machines[node].state == "shutting-down"


def test_who_was_dropped_waits_for_no_coordinator_that_is_not_heard_any_more() -> None:
    """Nobody trains then: what it waits for would never come, and it costs money."""
    world, master, worker, node = joining()
    world.hear(world.tag(node, present=False))
    world.hear(world.job_event(master, worker, revision=world.target().revision - 1))
    heard = world.now
    world.now = heard + world.rules().policy.lease_seconds
    world.resync()
    assert (world.status(node), world.machines[node].state) == ("REMOVAL_QUEUED", "running")
    world.wait(1)
    world.resync()
    assert world.machines[node].state == "shutting-down"


def test_a_base_node_that_was_replaced_is_kept_while_an_older_revision_is_obeyed() -> None:
    world, master, (worker,) = running_cluster(1)
    old = world.launch(2000, base=True)
    world.hear(world.report(old))
    world.resync()
    world.hear(world.job_event(master, old, worker, revision=world.target().revision))
    world.machines[worker].tags[BASE_TAG] = old
    world.wait(60)
    world.resync()
    dropped = world.target().revision
    assert old not in world.target().members
    world.hear(world.job_event(master, worker, revision=dropped - 1))
    world.resync()
    assert (world.status(old), world.machines[old].state) == ("REMOVAL_QUEUED", "running")
    world.hear(world.job_event(master, worker, revision=dropped))
    world.resync()
    assert world.machines[old].state == "shutting-down"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wish"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("obey"), st.integers(0, 3), st.booleans()),
    ),
    min_size=3,
    max_size=14,
)


@given(STEPS)
@settings(max_examples=25)
def test_law_nobody_is_ended_whom_the_target_that_is_obeyed_lists(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever people wish in whatever order, and however far behind the coordinator is."""
    world, master, workers = running_cluster(3)
    revisions: dict[int, tuple[str, ...]] = {}
    obeyed, ended = world.target().revision, set[str]()

    def look() -> None:
        target = world.target()
        revisions[target.revision] = target.members or ()
        for one in workers:
            if world.machines[one].state == "shutting-down" and one not in ended:
                ended.add(one)
                assert one not in revisions[obeyed], "it was to be in the job, for all that the coordinator knew"

    look()
    for what, number, flag in steps:
        world.wait(1)
        if what == "wish" and workers[number - 1] not in ended:
            world.hear(world.tag(workers[number - 1], present=flag))
        elif what == "obey":
            later = [revision for revision in sorted(revisions) if revision >= obeyed]
            obeyed = later[min(number, len(later) - 1)]
            members = [one for one in revisions[obeyed] if one != master and one not in ended]
            world.hear(world.job_event(master, *members, revision=obeyed))
        look()
    obeyed = max(revisions)
    members = [one for one in revisions[obeyed] if one != master]
    world.hear(world.job_event(master, *members, revision=obeyed))
    world.resync()
    look()
    wanted = {one for one in workers if world.rules().elastic_tag in world.machines[one].tags}
    assert ended == set(workers) - wanted, "who wishes to leave and may is ended"
