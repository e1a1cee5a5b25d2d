"""The brake on endings of instances that never reported: more than five within ten minutes stop until people say so."""

from __future__ import annotations

import pytest
from dyntrain.controller.core.decisions.brake import ENDINGS_HELD_TEXT
from fakes import World, running_cluster


def crowd(world: World, first: int, count: int, grouped: bool = False) -> list[str]:
    """Instances that were asked to join and of which nothing was heard."""
    nodes = [
        world.member(number, phase="in_service") if grouped else world.launch(number)
        for number in range(first, first + count)
    ]
    world.hear(*(world.tag(node) for node in nodes))
    world.wait(60)
    world.resync()
    return nodes


def let_go(world: World, nodes: list[str]) -> None:
    world.wait(1)
    world.hear(*(world.tag(node, present=False) for node in nodes))


def pass_time(world: World, minutes: int) -> None:
    for _ in range(minutes):
        world.wait(60)
        world.resync()


def ended(world: World) -> set[str]:
    kinds = ("instances.terminate", "groups.terminate")
    return {name for call in world.calls if call[0] in kinds for name in call[1:] if name.startswith("i-")}


def allow(world: World, nodes: list[str]) -> None:
    """As the alarm says."""
    world.wait(1)
    for node in nodes:
        machine = world.machines[node]
        machine.tags["dyntrain:leave"] = "now"
        machine.tag_version += 1
        world.hear(world.tag_event(node, machine.tag_version, machine.tags, ["dyntrain:leave"]))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("count", [5, 6, 12])
def test_a_handful_is_ended_and_more_at_once_are_not(count: int, grouped: bool) -> None:
    world = World()
    nodes = crowd(world, 1, count, grouped)
    let_go(world, nodes)
    pass_time(world, 90)
    assert ended(world) == (set(nodes) if count == 5 else set())
    held = [entry for entry in world.trail if entry["kind"] == "EndingsHeld"]
    assert [entry["instance"] for entry in held] == ([] if count == 5 else nodes), "each once"
    assert {entry["detail"] for entry in held} <= {ENDINGS_HELD_TEXT}
    assert world.metrics.count(("EndingsHeld", "demo", count)) == (count > 5)
    if count > 5:
        details = {node.standing.detail for node in world.decision().nodes}
        assert details == {ENDINGS_HELD_TEXT}, "status and explain say it"


def test_those_of_the_last_ten_minutes_count_and_what_was_stopped_stays_so() -> None:
    world = World()
    first, second, third = crowd(world, 1, 3), crowd(world, 11, 3), crowd(world, 21, 1)
    let_go(world, first)
    assert ended(world) == set(first)
    world.wait(500)
    let_go(world, second)
    pass_time(world, 60)
    let_go(world, third)
    pass_time(world, 60)
    assert ended(world) == set(first)
    allow(world, second)
    assert ended(world) == {*first, *second}, "people were told of the third as well"
    allow(world, third)
    fourth = crowd(world, 31, 2)
    let_go(world, fourth)
    assert ended(world) == {*first, *second, *third, *fourth}, "nothing is stopped any more"


def test_a_few_every_ten_minutes_are_not_stopped() -> None:
    world = World()
    crowds = [crowd(world, 10 * number, 5) for number in range(1, 4)]
    for nodes in crowds:
        let_go(world, nodes)
        world.wait(600)
    assert ended(world) == {node for nodes in crowds for node in nodes}


def test_people_let_them_go_one_by_one_and_the_others_stay() -> None:
    world = World()
    nodes = crowd(world, 1, 12)
    let_go(world, nodes)
    allow(world, nodes[:2])
    pass_time(world, 30)
    assert ended(world) == set(nodes[:2])
    allow(world, nodes[2:])
    assert ended(world) == set(nodes)


def test_one_that_is_asked_to_join_again_before_anybody_looked_is_kept() -> None:
    world = World()
    nodes = crowd(world, 1, 6)
    let_go(world, nodes)
    world.wait(1)
    world.hear(world.tag(nodes[0]), world.report(nodes[0]))
    assert world.status(nodes[0]) == "ADD_QUEUED"
    allow(world, nodes[1:])
    assert ended(world) == set(nodes[1:])


def test_without_the_brake_they_all_go_at_once() -> None:
    world = World(hold_endings=False)
    nodes = crowd(world, 1, 12)
    let_go(world, nodes)
    assert ended(world) == set(nodes)
    assert not [entry for entry in world.trail if entry["kind"] == "EndingsHeld"]


def test_those_that_were_heard_of_are_none_of_its_business() -> None:
    """A job's end releases any number of them, also those that only failed."""
    world, master, workers = running_cluster(8)
    failed = crowd(world, 20, 8)
    world.hear(*(world.report(node, "prepare_failed") for node in failed))
    let_go(world, failed)
    world.hear(world.job_event(master, *workers, state="finished", revision=world.target().revision))
    pass_time(world, 3)
    assert ended(world) == {*workers, *failed}


def test_at_a_jobs_end_those_that_never_reported_wait_for_people_and_the_others_go() -> None:
    world, master, workers = running_cluster(8)
    silent = crowd(world, 20, 8)
    world.hear(world.job_event(master, *workers, state="finished", revision=world.target().revision))
    pass_time(world, 3)
    assert ended(world) == set(workers)
    assert world.metrics.count(("EndingsHeld", "demo", 8)) == 1
    allow(world, silent)
    assert ended(world) == {*workers, *silent}
