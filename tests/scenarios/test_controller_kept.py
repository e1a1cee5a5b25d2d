"""How long facts are kept, whom a write wakes, and what a rebuilt controller believes until somebody says otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.rebuild import awaits_job
from fakes import World, instance_id, running_cluster

DAY = 86_400


def written(world: World, *events: Any) -> tuple[int | None, bool]:
    """When what the last of the events wrote is forgotten, in seconds from now, and whether it woke the stream."""
    world.take_in(*events)
    image = world.stream[-1]["NewImage"]
    expires = image.get("expires")
    return None if expires is None else int(expires["N"]) - int(world.now), image["wake"]["BOOL"]


def test_what_is_known_of_a_clusters_node_is_kept_until_long_after_its_end_and_of_nobodys_for_a_day() -> None:
    """A tombstone outlives every event that may be replayed; else an old tag would bring the node back."""
    world = World()
    node = instance_id(1)
    assert written(world, world.state_event(node, "running")) == (DAY, False)
    grouped = instance_id(2)
    assert written(world, world.hook_event(grouped, "launch", "t")) == (None, True)
    named = world.launch(3)
    assert written(world, world.tag(named)) == (None, True)
    for one in (node, grouped, named):
        assert written(world, world.state_event(one, "terminated"))[0] == 7 * DAY


def test_who_is_claimed_within_the_day_is_kept() -> None:
    world = World()
    node = world.launch(1)
    assert written(world, world.state_event(node, "running"))[0] == DAY
    assert written(world, world.tag(node)) == (None, True)


@pytest.mark.parametrize(("late", "waits"), [(119.0, True), (120.0, True), (121.0, False)])
def test_a_rebuilt_controller_waits_for_the_job_as_long_as_for_a_silent_coordinator(late: float, waits: bool) -> None:
    world, _, _ = running_cluster(0)
    policy = world.rules().policy
    heard, _ = world.ports.jobs.get("demo")
    rebuilt = Membership(revision=3, rebuilt_at=world.now)
    then = world.now + late
    assert policy.takeover_seconds == 120.0
    assert awaits_job(rebuilt, None, policy, then) == waits
    assert not awaits_job(rebuilt, heard, policy, then), "it has spoken"
    assert not awaits_job(rebuilt.model_copy(update={"finished": True}), None, policy, then), "it is over"
    assert not awaits_job(Membership(revision=3), None, policy, then), "nothing was lost"


@pytest.mark.parametrize("outcome", ["prepare_failed", "worker_failed"])
def test_any_word_of_a_node_overrules_what_was_believed_of_it_also_one_that_was_under_way(outcome: str) -> None:
    """It was in the target, so it counts as prepared; its own first attempt knows better, though it spoke before."""
    world, master, (worker,) = running_cluster(1)
    report = world.report(worker, outcome, attempt=1, reason="of its own")
    world.table.clear(), world.stream.clear(), world.pending.clear()
    world.wait(60)
    world.resync()
    assert worker in (world.ports.clusters.get("demo").membership.members)
    world.hear(world.job_event(master, worker, revision=world.target().revision))
    world.hear(report)
    world.resync()
    assert worker not in (world.target().members or ())
