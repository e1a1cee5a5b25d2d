"""A survey that lacks a part is none: nothing is taken from it but that time has passed.

By a whole survey a controller whose table was lost decides who its members are. Of half of one it would rebuild half of
the cluster, and end the other half.
"""

from __future__ import annotations

import pytest
from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.contract.errors import GiveUp, RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.loops.ports import Wake
from dyntrain.controller.loops.resync import ResyncResult, resync
from fakes import ELASTIC, Member, World, running_cluster

READS = (
    "nodes.of_cluster",
    "groups.of_own_stacks",
    "groups.members",
    "groups.hooks",
    "instances.tagged",
    "instances.of_templates",
    "instances.by_id",
    "group_records.of_cluster",
)


def surveyed(world: World) -> tuple[ResyncResult, Wake, int]:
    """What a resync says of itself, what it wakes the stream for, and how many facts it has written."""
    world.stream, before = [], world.count("nodes.put")
    done = resync(world.ports, world.registry, ELASTIC)
    wake, world.stream = wake_of(world.stream), []
    return done, wake, world.count("nodes.put") - before


def changed() -> World:
    """A cluster in which each read of a resync is needed, and in which something has happened that no event told."""
    world, _, _ = running_cluster(2)
    world.member(7)
    hidden = world.launch(8)
    world.hear(world.tag(hidden), world.report(hidden))
    world.hidden.add(hidden)
    world.wait(600)
    return world


def test_a_survey_that_is_whole_says_so_and_writes_what_it_saw() -> None:
    world = changed()
    calls = len(world.calls)
    done, wake, written = surveyed(world)
    assert (done.complete, wake.ticked, wake.surveyed) == (True, {"demo"}, {"demo"})
    assert written > 0
    assert set(READS) <= {call[0] for call in world.calls[calls:]}, "else the test below shows nothing of them"


@pytest.mark.parametrize("error", [RetryLater("Throttling"), GiveUp("UnauthorizedOperation")])
@pytest.mark.parametrize("read", READS)
def test_a_read_that_fails_makes_the_survey_none_and_the_clusters_are_looked_at_all_the_same(
    read: str, error: Exception
) -> None:
    world = changed()
    world.failing[read] = [error]
    done, wake, written = surveyed(world)
    assert (done.complete, done.seen, done.written, written) == (False, 0, 0, 0)
    assert (wake.ticked, wake.surveyed) == ({"demo"}, frozenset())
    assert not wake.nodes
    assert world.metrics[-1:] == [("ReadFailed", "demo", 1)]
    assert surveyed(world)[1].surveyed == {"demo"}, "the next one is whole again"


@pytest.mark.parametrize("read", READS)
def test_a_lost_table_is_not_rebuilt_by_a_survey_that_lacks_a_part(read: str) -> None:
    world = changed()
    before = world.target()
    world.table.clear()
    # what a table that knows nothing asks for is less; its own read fails in the place of those that are not made
    world.failing[read if read not in ("instances.by_id", "group_records.of_cluster") else "nodes.of_cluster"] = [
        RetryLater("Throttling")
    ]
    world.resync()
    assert world.ports.clusters.get("demo").version == 0
    assert world.target() == before
    world.resync()
    assert world.ports.clusters.get("demo").version > 0
    assert set(world.target().members or ()) == set(before.members or ())


def test_a_survey_whose_losses_are_doubted_is_not_whole_until_a_second_one_says_the_same() -> None:
    world, _, workers = running_cluster(3)
    for worker in workers:
        world.machines[worker].tags.pop(ELASTIC.of("demo"))
    world.wait(600)
    done, wake, _ = surveyed(world)
    assert (done.held, wake.ticked, wake.surveyed) == (("demo",), {"demo"}, frozenset())
    world.wait(60)
    done, wake, _ = surveyed(world)
    assert (done.held, wake.ticked, wake.surveyed) == ((), {"demo"}, {"demo"})


def test_a_second_survey_that_loses_others_than_the_first_is_no_second_word() -> None:
    """All of its losses wait for the next: what reads wrong may read wrong in another way each time."""
    world, _, workers = running_cluster(4)
    before = world.target().members
    for number, worker in enumerate(workers, 1):
        world.machines[worker].tags.pop(ELASTIC.of("demo"))
        if number in (3, 4):
            world.wait(60)
            assert world.resync().held == ("demo",)
            assert world.target().members == before
    world.wait(60)
    assert world.resync().held == ()
    assert not set(world.target().members or ()) & set(workers)


@pytest.mark.parametrize(("lost", "held"), [(2, False), (3, True)])
def test_half_of_the_members_may_be_lost_at_once_and_more_may_not(lost: int, held: bool) -> None:
    world, _, workers = running_cluster(3)
    for worker in workers[:lost]:
        world.machines[worker].tags.pop(ELASTIC.of("demo"))
    world.wait(60)
    assert bool(world.resync().held) == held
    assert bool(set(world.target().members or ()) >= set(workers)) == held


@pytest.mark.parametrize(("late", "counts"), [(0.0, True), (1.0, False)])
def test_a_first_survey_that_is_long_past_is_none(late: float, counts: bool) -> None:
    """Three periods and a half: a lost resync or two in between do not matter, a day does."""
    world, _, workers = running_cluster(3)
    for worker in workers:
        world.machines[worker].tags.pop(ELASTIC.of("demo"))
    world.wait(60)
    assert world.resync().held == ("demo",)
    world.wait(3.5 * world.rules().policy.resync_seconds + late)
    assert (world.resync().held == ()) == counts


@pytest.mark.parametrize("between", ["nothing", "they were seen again"])
def test_a_word_is_second_only_after_a_first_that_was_not_taken_back_and_was_before_it(between: str) -> None:
    """Two resyncs of one moment have read the same answer; and what was seen in between was not lost."""
    world, _, workers = running_cluster(3)
    key = ELASTIC.of("demo")
    for worker in workers:
        world.machines[worker].tags.pop(key)
    world.wait(60)
    assert world.resync().held == ("demo",)
    if between == "they were seen again":
        world.wait(60)
        for worker in workers:
            world.machines[worker].tags[key] = ""
        assert world.resync().held == ()
        world.wait(60)
        for worker in workers:
            world.machines[worker].tags.pop(key)
    assert world.resync().held == ("demo",)
    assert set(world.target().members or ()) >= set(workers)


def test_a_group_that_two_clusters_register_is_read_for_the_first_by_name() -> None:
    """As events about its members are heard: else each read would name them anew."""
    world = World("a", "b")
    for cluster in ("a", "b"):
        world.register(ClusterPolicy(cluster=cluster, groups=("shared",)))
    node = world.launch(1, owned=False, elastic=False)
    world.membership[node] = Member("shared", "in_service")
    world.resync()
    stored = world.ports.nodes.get(node)
    assert stored is not None
    assert stored.facts.named is not None
    assert stored.facts.named.cluster == "a"


def test_who_is_a_member_of_a_group_that_nobody_reads_is_not_taken_to_have_left_it() -> None:
    world, _, (worker,) = running_cluster(1)
    detail = {"EC2InstanceId": worker, "AutoScalingGroupName": "web"}
    world.hear(world.event("aws.autoscaling", "EC2 Instance Launch Successful", detail))
    world.wait(600)
    world.resync()
    assert next(node.view for node in world.decision().nodes if node.view.instance == worker).group == "web"
