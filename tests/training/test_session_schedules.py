"""Random schedules: whatever breaks in whatever order, the job ends, and took every sample of every epoch exactly once.

What would break for a user: a job that hangs for ever, counts samples twice or not at all, or goes on with workers
whose states differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from dyntrain.training.audit import audit
from dyntrain.training.ledger import Intent
from dyntrain.training.protocol.engines import EngineName
from hypothesis import given, note, settings
from hypothesis import strategies as st
from session_processes import SAMPLES
from session_world import World

EXAMPLES = int(os.environ.get("DYNTRAIN_SCHEDULES", "150"))


def check(world: World) -> None:
    """Every sample of every epoch once, and the weights were made from just what the audit counts."""
    note(str([(a.event.event, getattr(a.event, "reason", None)) for a in world.announced]))
    assert world.over == "finished"
    result = audit(world.journal, map(Intent.model_validate, world.intents), SAMPLES)
    assert (result.lost, result.doubled, len(result.epochs)) == (0, 0, world.loops * world.epochs)
    assert {state for state in world.results if len(state) == len(world.history())} <= {world.history()}


def faults(world: World) -> list[Callable[[], Any]]:
    """What a schedule can do to the job."""
    running = [node.worker for node in world.nodes.values() if node.worker.alive]

    def hang(worker: Any) -> None:
        worker.hung = True
        world.cut(worker)

    def die_soon(orders: int) -> None:
        world.orders_left = orders

    def spoil(node: Any) -> None:
        node.safe.damaged = True

    def forget(node: Any) -> None:
        node.safe = None

    return [
        *(lambda worker=worker: worker.exit(-9) for worker in running),
        *(lambda worker=worker: world.cut(worker) for worker in running if worker.link),
        *(lambda worker=worker: hang(worker) for worker in running if worker.link and worker.link.greeted),
        *(lambda node=node: spoil(node) for node in world.nodes.values() if node.safe),
        *(lambda node=node: forget(node) for node in world.nodes.values() if node.safe),
        world.crash,
        *(lambda orders=orders: die_soon(orders) for orders in range(6)),
        *(lambda names=names: world.want(names) for names in ("ab", "abc", "abcd", "ac", "bd", "b")),
        *(lambda seconds=seconds: world.pass_time(seconds) for seconds in (0.5, 3.5, 25.0, 65.0)),
    ]


def faults_and_replacement(world: World) -> list[Callable[[], Any]]:
    """The same, while the base node a is to be replaced by c, or not, as somebody changes their mind."""
    replacement = [lambda: world.want("bcd", "ac"), lambda: world.want("bc", "ac"), lambda: world.promote("c")]
    return [*faults(world), *replacement, *replacement]


def calm(world: World, wanted: str = "abcd", replacing: str = "") -> None:
    """No more faults: everything that can happen does, and time passes."""
    world.orders_left = None
    world.want(wanted, replacing)
    for _ in range(4000):
        moved = False
        for move in world.moves():
            moved = move() is not False or moved
        if world.over:
            return
        world.pass_time(0.2 if moved else 1.0)
    phase = world.session.job.phase if world.session else None
    raise AssertionError(
        f"the job hangs in {phase}, {world.session and world.session.job.paused}; last: {world.announced[-5:]}"
    )


def play(
    world: World, schedule: list[tuple[int, int]], faults: Callable[[World], list[Callable[[], Any]]] = faults
) -> None:
    """Each pair: so many moves that happen by themselves, chosen by the number; then one fault."""
    for moves, choice in schedule:
        for step in range(moves):
            if possible := world.moves():
                possible[(choice * 7 + step * 3) % len(possible)]()
        possible = faults(world)
        possible[choice % len(possible)]()
        world.pass_time(0.1)


schedules = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 1000)), max_size=14)


ENGINES: list[EngineName] = ["pslite", "horovod"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("segments", [False, True])
@settings(max_examples=EXAMPLES, deadline=None)
@given(schedule=schedules, slow_storage=st.booleans())
def test_whatever_happens_the_job_ends_with_every_sample_taken_once(
    engine: EngineName, segments: bool, schedule: list[tuple[int, int]], slow_storage: bool
) -> None:
    world = World("ab", "cd", segments=segments, slow_storage=slow_storage, engine=engine)
    play(world, schedule)
    calm(world)
    check(world)
    assert world.over == "finished"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("segments", [False, True])
@settings(max_examples=EXAMPLES, deadline=None)
@given(schedule=schedules, slow_storage=st.booleans(), loops=st.integers(2, 3))
def test_whatever_happens_between_loops_over_epochs_each_of_them_takes_every_sample_once(
    engine: EngineName, segments: bool, schedule: list[tuple[int, int]], slow_storage: bool, loops: int
) -> None:
    world = World("ab", "cd", segments=segments, slow_storage=slow_storage, engine=engine, loops=loops, epochs=1)
    play(world, schedule)
    calm(world)
    check(world)
    assert world.over == "finished"


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(schedule=schedules)
def test_t22_whatever_happens_while_a_base_node_is_replaced_no_sample_is_lost_and_no_server_stays_on_it(
    engine: EngineName, schedule: list[tuple[int, int]]
) -> None:
    world = World("ab", "cd", engine=engine)
    play(world, schedule, faults_and_replacement)
    world.promote("c")
    calm(world, "bcd", "ac")
    check(world)
    assert world.over == "finished"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("segments", [False, True])
@settings(max_examples=EXAMPLES, deadline=None)
@given(schedule=schedules, loops=st.integers(1, 2))
def test_whatever_happens_to_one_of_a_nodes_processes_the_job_ends_with_whole_nodes(
    engine: EngineName, segments: bool, schedule: list[tuple[int, int]], loops: int
) -> None:
    """That a node trains with all its processes or not at all the world sees at each generation."""
    world = World("ab", "c", segments=segments, engine=engine, loops=loops, epochs=2, slots=2)
    play(world, schedule)
    calm(world, "abc")
    check(world)
    assert world.over == "finished"


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(schedule=schedules)
def test_t22_whatever_happens_while_a_base_node_of_two_processes_is_replaced_no_server_stays_on_it(
    engine: EngineName, schedule: list[tuple[int, int]]
) -> None:
    world = World("ab", "cd", engine=engine, epochs=2, slots=2)
    play(world, schedule, faults_and_replacement)
    world.promote("c")
    calm(world, "bcd", "ac")
    check(world)
    assert world.over == "finished"
