"""What a loss inside a formation costs: the state of the boundary is safe on its holders' nodes, and nothing that was trained is trained again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from session_processes import EPOCHS, SAMPLES, Worker, instance
from session_world import World

from training.audit import audit
from training.knowledge import Phase
from training.origin import START, Line, Origin, choose_origin
from training.protocol import Formed, Position, SafeCopy, WorkerHello

A, B, C = map(instance, "abc")


def until(world: World, reached: Callable[[], bool]) -> None:
    """Move by move; time passes when nothing else happens."""
    for _ in range(2000):
        if reached():
            return
        moved = False
        for move in world.moves():
            moved = move() is not False or moved
            if reached():
                return
        if not moved:
            world.pass_time(0.2)
    raise AssertionError(f"never reached; last: {world.announced[-3:]}")


def worker(world: World, name: str) -> Worker:
    return world.nodes[name].worker


def inside_create(world: World) -> bool:
    return worker(world, C).doing == "create"


def formed_first(world: World) -> bool:
    """The joiner is through with ps-lite, the coordinator has not heard of everybody."""
    assert world.session is not None
    return isinstance(worker(world, C).dialogue.pending, Formed) and world.session.phase is Phase.FORMING


def joining(moment: Callable[[World], bool]) -> World:
    """A job with boundaries in mid-epoch; c joins, and dies at that moment."""
    world = World("ab", "c", segments=True)
    until(world, lambda: len(worker(world, A).applied) >= 2)
    world.want("abc")
    until(world, lambda: moment(world))
    worker(world, C).exit(-9)
    return world


def finished(world: World) -> World:
    until(world, lambda: world.over is not None)
    result = audit(world.journal, world.intents, SAMPLES)
    assert (world.over, result.lost, result.doubled, len(result.epochs)) == ("finished", 0, 0, EPOCHS)
    assert world.history() in world.results, "the weights were made from what the audit counts"
    return world


def trained_twice(world: World) -> set[int]:
    """Steps that more than one generation began."""
    begun = {(intent["s"], intent["g"]) for intent in world.intents}
    return {step for step, _ in begun if len({generation for other, generation in begun if other == step}) > 1}


def starts(world: World) -> list[str | None]:
    """Whose safe state each generation began with."""
    return [record["safe"] for record in world.journal if record["kind"] == "generation"]


def announced(world: World, event: str) -> list[str]:
    return [order.fields["instance"] for order in world.announced if order.event == event]


@pytest.mark.parametrize("moment", [inside_create, formed_first])
def test_t9_after_the_word_to_go_the_restart_begins_with_the_boundarys_own_state(moment: Callable[[World], bool]) -> None:
    world = joining(moment)
    pids = [worker(world, name).pid for name in (A, B)]
    finished(world)
    assert trained_twice(world) == set(), "the last commit is a segment behind"
    assert starts(world) == [None, None, A, *[None] * (len(starts(world)) - 3)]
    assert not {worker(world, name).pid for name in (A, B)} & set(pids), "nobody can be freed from inside ps-lite"


def test_t9_when_the_first_holders_node_is_gone_the_next_one_has_the_state_too() -> None:
    world = joining(inside_create)
    world.nodes[A].safe = None
    finished(world)
    assert trained_twice(world) == set()
    assert B in starts(world)


def test_t9_a_damaged_safe_state_is_told_and_the_next_holders_taken() -> None:
    world = joining(inside_create)
    safe = world.nodes[A].safe
    assert safe is not None
    safe.damaged = True
    finished(world)
    assert announced(world, "safe_state_unreadable") == [A]
    assert trained_twice(world) == set(), "b's copy has the same name and is whole"


def test_t9_without_any_safe_state_the_last_commit_is_taken_at_its_own_position() -> None:
    world = joining(inside_create)
    for name in (A, B):
        world.nodes[name].safe = None
    finished(world)
    assert trained_twice(world) != set(), "the segment since the commit"
    assert starts(world) == [None] * len(starts(world))


def test_t9_a_coordinator_that_dies_with_the_joiner_learns_of_the_safe_state_from_its_holders() -> None:
    world = joining(inside_create)
    world.crash()
    finished(world)
    assert trained_twice(world) == set()
    assert A in starts(world)


def test_t9_a_second_loss_inside_the_next_formation_costs_no_more_than_the_first() -> None:
    world = joining(inside_create)
    before = worker(world, B)
    until(world, lambda: worker(world, B) is not before and worker(world, B).doing == "create")
    worker(world, B).exit(-9)
    finished(world)
    assert trained_twice(world) == set()


# ---- which safe state may be used

ONE, TWO = Position(epoch=0, offset=2, step=1), Position(epoch=0, offset=4, step=2)


def hello(generation: int, position: Position, name: str = "5f") -> WorkerHello:
    return WorkerHello(
        cluster="c",
        instance_id=A,
        private_ip="10.0.0.1",
        pid=1,
        state_port=9,
        epochs=1,
        samples=5,
        global_batch=2,
        seed=0,
        layout="x",
        safe=SafeCopy(generation=generation, position=position, name=name),
    )


def test_a_safe_state_of_a_past_that_was_undone_is_never_taken() -> None:
    """Step 2 was trained by generation 1 and, after a fall back to step 1, again by generation 4: their states may differ."""
    line = Line()
    for number, position in ((1, START), (2, TWO), (3, ONE), (4, TWO), (5, TWO)):
        line = line.settled(number, position)
    taken = {generation: choose_origin(None, line, {A: hello(generation, TWO)}, set()).safe for generation in (2, 4, 5, 6)}
    assert taken == {2: None, 4: "5f", 5: "5f", 6: None}
    assert choose_origin(None, line, {A: hello(5, ONE)}, set()).safe is None, "of another position"


def test_a_commit_that_is_as_far_as_the_safe_state_is_taken() -> None:
    """Both are whole; the commit is where everybody can read it."""
    line = Line().settled(1, TWO)
    ready = {A: hello(1, TWO)}
    assert choose_origin((TWO, "c2"), line, ready, set()) == Origin(TWO, commit="c2")
    assert choose_origin((ONE, "c1"), line, ready, set()) == Origin(TWO, safe="5f", source=A)
    assert choose_origin((ONE, "c1"), line, ready, {(A, "5f")}) == Origin(ONE, commit="c1")
