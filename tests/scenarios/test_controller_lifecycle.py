"""Lifecycle hooks, preparation and what only time changes (C11-C13, C27, C32), and the periodic reading."""

from __future__ import annotations

import pytest
from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.loops.converge import converge
from fakes import ELASTIC, World

KEY = ELASTIC.of("demo")


def launching() -> tuple[World, str]:
    world = World()
    instance = world.member(1)
    world.hear(world.hook_event(instance, "launch", "t-1"), world.report(instance, "alive"))
    return world, instance


def completions(world: World) -> list[tuple[str, str]]:
    return [(call[3], call[4]) for call in world.calls if call[0] == "groups.complete"]


def test_a_group_member_is_stamped_with_its_owner_at_first_sight() -> None:
    world, instance = launching()
    assert world.machines[instance].tags["dyntrain:cluster"] == "demo"
    assert [call[1] for call in world.calls if call[0] == "instances.tag"] == ["dyntrain:cluster"]


def test_c11_a_preparation_longer_than_the_heartbeat_is_kept_alive_each_period() -> None:
    world, instance = launching()
    for _ in range(5):
        world.wait(60)
        world.resync()
    assert [call[1:] for call in world.calls if call[0] == "groups.heartbeat"] == [(instance, "demo-launch", "t-1")] * 5
    world.hear(world.report(instance))
    assert completions(world) == [("t-1", "CONTINUE")]


def test_the_hook_continues_once_when_prepared_and_before_the_worker_has_joined() -> None:
    world, instance = launching()
    world.hear(world.report(instance))
    world.wait(4)
    world.hear(world.report(instance))
    world.resync()
    assert completions(world) == [("t-1", "CONTINUE")]
    assert world.standing(instance) == ("ADD_QUEUED", "NO_JOB")


def test_n2_a_failed_preparation_shows_with_its_reason_and_abandons_the_hook() -> None:
    world, instance = launching()
    world.hear(world.report(instance, "prepare_failed", reason="exit 1: no such file"))
    assert completions(world) == [("t-1", "ABANDON")]
    assert world.mirror(instance) == "PREPARE_FAILED"
    node = world.decision().nodes[0]
    assert node.standing.detail == "exit 1: no such file"


def starting(*, base: bool) -> tuple[World, str]:
    """Its user data run, and nothing has been heard of it."""
    world = World()
    instance = world.member(1, base=base)
    world.hear(world.state_event(instance, "pending"), world.hook_event(instance, "launch", "t-1"))
    world.wait(1)
    return world, instance


def test_a_base_node_that_cannot_be_prepared_stays_for_people_and_goes_on_when_it_is_mended() -> None:
    """Whoever was logged in to mend it lost the machine, and its group launched the next one, which failed as well."""
    world, base = starting(base=True)
    world.hear(world.report(base, "prepare_failed", reason="prepare-data failed 3 times; the last: exit code 2"))
    assert completions(world) == [("t-1", "CONTINUE")]
    world.membership[base].phase, world.membership[base].waits = "in_service", None
    for _ in range(3):
        world.wait(60)
        world.resync()
    assert world.standing(base) == ("PREPARE_FAILED", "PREPARE_FAILED")
    assert (world.count("groups.terminate"), world.count("instances.terminate")) == (0, 0)
    assert world.metrics.count(("BasePrepareFailed", "demo", 1)) == 1
    (detail,) = [entry["detail"] for entry in world.trail if entry["kind"] == "BasePrepareFailed"]
    assert "exit code 2" in detail, "the last lines"
    world.hear(world.report(base, "prepared"))
    assert world.target().members == (base,)


def test_a_node_whose_tags_may_not_all_show_yet_is_not_given_up() -> None:
    """It may be the master: its base tag comes with the next read."""
    world = World(settling_seconds=100.0)
    instance = world.member(1, elastic=False)
    world.hear(world.hook_event(instance, "launch", "t-1"))
    world.resync()
    world.wait(1)
    world.hear(world.report(instance, "prepare_failed", reason="exit code 1"))
    assert completions(world) == []
    world.machines[instance].tags["dyntrain:base"] = "true"
    world.wait(200)
    world.resync()
    assert completions(world) == [("t-1", "CONTINUE")]


@pytest.mark.parametrize("base", [True, False])
def test_a_node_that_was_never_heard_of_is_not_kept_alive_and_is_told(base: bool) -> None:
    """Its user data died: an elastic one was kept for six hours and a base one for a day, with nobody told."""
    world, instance = starting(base=base)
    for _ in range(16):
        world.wait(60)
        world.resync()
    assert world.count("groups.heartbeat") == 0, "the hook ends by itself"
    assert world.standing(instance) == ("WAITING", "NEVER_HEARD")
    assert world.metrics == [("NeverHeard", "demo", 1)]
    assert completions(world) == ([("t-1", "CONTINUE")] if base else []), "a base node stays for people"
    world.hear(world.report(instance, "alive", reason="it waits for /myEFSvolume/prepare-data.py"))
    assert world.standing(instance) == ("WAITING", "PREPARING")
    assert world.decision().nodes[0].standing.detail == "it waits for /myEFSvolume/prepare-data.py"


def test_a_sign_of_life_keeps_the_launch_alive_and_one_of_an_earlier_life_does_not() -> None:
    world, instance = starting(base=False)
    world.hear(world.report(instance, "alive", at=world.now - 500))
    world.wait(60)
    world.resync()
    assert world.count("groups.heartbeat") == 0
    world.hear(world.report(instance, "alive"))
    assert world.count("groups.heartbeat") == 1
    world.wait(1)
    world.hear(world.report(instance, "prepare_failed", reason="the user data ended with exit code 1 at line 9"))
    assert completions(world) == [("t-1", "ABANDON")], "given up at once, not after hours"


def test_n1_a_later_attempt_that_succeeds_overrules_the_failed_one() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance), world.report(instance, "prepare_failed", attempt=1, reason="exit 1"))
    world.wait(5)
    world.hear(world.report(instance, "prepared", attempt=2))
    world.hear(world.report(instance, "prepare_failed", attempt=1, reason="late"))
    assert world.mirror(instance) == "ADD_QUEUED"


def test_c12_a_stale_token_counts_as_done_and_is_not_asked_again() -> None:
    world, instance = launching()
    world.stale_tokens.add("t-1")
    world.hear(world.report(instance))
    world.resync()
    assert completions(world) == [("t-1", "CONTINUE")]


def test_c13_a_throttled_heartbeat_is_repeated_at_the_next_tick() -> None:
    world, _ = launching()
    world.wait(60)
    world.failing["groups.heartbeat"] = [RetryLater("Throttling")]
    with pytest.raises(RetryLater):
        world.resync()
    world.resync()
    assert world.count("groups.heartbeat") == 2


def test_c27_a_completion_that_failed_is_repeated_until_it_is_acknowledged() -> None:
    world, instance = launching()
    world.failing["groups.complete"] = [RetryLater("away"), RetryLater("away")]
    with pytest.raises(RetryLater):
        world.hear(world.report(instance))
    with pytest.raises(RetryLater):
        world.resync()
    world.resync()
    world.resync()
    assert completions(world) == [("t-1", "CONTINUE")] * 3


def test_the_terminate_hook_waits_for_the_boundary_and_continues_when_the_worker_has_left() -> None:
    world, instance = launching()
    world.hear(world.report(instance))
    world.hear(world.job_event(instance, revision=1))
    world.membership[instance].phase, world.membership[instance].waits = "terminating", "terminate"
    world.hear(world.hook_event(instance, "terminate", "t-2"))
    assert world.mirror(instance) == "REMOVAL_QUEUED"
    assert completions(world) == [("t-1", "CONTINUE")]
    world.wait(25)
    world.hear(world.job_event(instance, revision=2))
    world.hear(world.job_event(revision=2))
    assert completions(world) == [("t-1", "CONTINUE"), ("t-2", "CONTINUE")]
    assert world.mirror(instance) == "REMOVED"
    assert world.count("groups.terminate") == 0


def test_c32_time_alone_beats_hearts_republishes_and_notices_a_silent_coordinator() -> None:
    world, waiting = launching()
    worker = world.launch(3)
    world.hear(world.tag(worker), world.report(worker))
    world.hear(world.job_event(worker, revision=1))
    assert world.mirror(worker) == "ADDED"
    del world.parameters["/dyntrain/demo/target"]
    for _ in range(3):
        world.wait(60)
        world.resync()
    assert world.count("groups.heartbeat") == 3
    assert world.target().members == (worker,)
    assert world.standing(worker) == ("ADD_QUEUED", "NO_JOB")
    assert world.status(waiting) == "WAITING"


def test_a_resync_that_confirms_what_is_known_writes_only_the_tick() -> None:
    world, instance = launching()
    world.hear(world.report(instance))
    world.wait(60)
    world.resync()
    world.wait(60)
    writes = world.count("nodes.put")
    assert world.resync().written == 0
    assert world.count("nodes.put") == writes


def test_a_status_tag_that_somebody_changed_is_mended_by_the_resync() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance), world.report(instance))
    world.machines[instance].tags["elastic_worker_status"] = "REMOVED"
    world.wait(60)
    world.resync()
    assert world.mirror(instance) == "ADD_QUEUED"


def test_a_read_younger_than_the_settling_margin_does_not_overrule_an_event_and_a_later_one_does() -> None:
    world = World()
    instance, base = world.launch(1, elastic=False), world.launch(2, base=True)
    world.machines[instance].launched_at -= 500
    # EC2 does not describe the new tag yet
    event = world.tag_event(instance, 2, {"dyntrain:cluster": "demo", KEY: ""}, [KEY])
    world.hear(world.report(base), event, world.report(instance))
    world.wait(2)
    world.resync()
    assert world.status(instance) == "ADD_QUEUED"
    world.wait(60)
    world.resync()
    assert world.mirror(instance) == "REMOVED"


def test_a_restarted_instance_is_not_prepared_until_its_new_life_says_so() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance), world.report(instance))
    world.wait(10)
    world.hear(world.state_event(instance, "stopped"))
    assert world.standing(instance) == ("REMOVED", "STOPPED")
    assert world.count("instances.terminate") == 0
    world.wait(10)
    world.hear(world.state_event(instance, "pending"), world.state_event(instance, "running"))
    assert world.standing(instance) == ("WAITING", "PREPARING")
    world.wait(10)
    world.hear(world.report(instance, attempt=2))
    assert world.status(instance) == "ADD_QUEUED"


def test_n8_a_worker_that_was_given_up_is_released() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance), world.report(instance))
    world.wait(5)
    world.resync()
    world.hear(world.report(instance, "worker_failed", reason="crashed five times"))
    assert world.standing(instance)[0] == "REMOVED"
    assert world.count("instances.terminate") == 1
    assert ("WorkerFailed", "demo", 1) in world.metrics, "its group launches another, which may fail alike for ever"


def test_c37_the_loser_of_a_race_for_the_membership_looks_again_and_nobody_who_is_ready_waits_for_the_tick() -> None:
    """The winner's index did not show yet that the loser's node is prepared."""
    world = World()
    mine, theirs = world.launch(1), world.launch(2)
    world.hear(world.tag(mine), world.tag(theirs))
    before = world.ports.nodes.get(mine)
    world.take_in(world.report(mine))
    my_record, world.stream = world.stream, []
    world.take_in(world.report(theirs))
    world.ports.nodes.lagging = {mine: before}  # type: ignore[attr-defined, dict-item]
    world.before["clusters.put"] = [world.settle]
    converge(world.ports, world.registry, wake_of(my_record), ELASTIC)
    assert set(world.target().members or ()) == {mine, theirs}
