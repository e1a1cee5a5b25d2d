"""What a loss inside a formation costs: the state of the boundary is safe on its holders' nodes, and nothing that was
trained is trained again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dyntrain.training.audit import audit
from dyntrain.training.journal import GenerationSettled
from dyntrain.training.ledger import Intent
from dyntrain.training.protocol.messages import Formed, Position, SafeCopy, WorkerHello
from dyntrain.training.session.generation.origin import GENERATIONS, START, Lineage, Origin, choose_origin
from dyntrain.training.session.job.state import Phase
from hypothesis import given
from hypothesis import strategies as st
from session_processes import EPOCHS, SAMPLES, Worker, instance
from session_world import World

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
    return isinstance(worker(world, C).dialogue.pending, Formed) and world.session.job.phase is Phase.FORMING


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
    result = audit(world.journal, map(Intent.model_validate, world.intents), SAMPLES)
    assert (world.over, result.lost, result.doubled, len(result.epochs)) == ("finished", 0, 0, EPOCHS)
    assert world.history() in world.results, "the weights were made from what the audit counts"
    return world


def trained_twice(world: World) -> set[int]:
    """Steps that more than one generation began."""
    begun = {(intent["s"], intent["g"]) for intent in world.intents}
    return {step for step, _ in begun if len({generation for other, generation in begun if other == step}) > 1}


def starts(world: World) -> list[str | None]:
    """Whose safe state each generation began with."""
    return [entry.safe for entry in world.journal if isinstance(entry, GenerationSettled)]


def announced(world: World, event: str) -> list[str]:
    return [order.event.instance for order in world.announced if order.event.event == event]


@pytest.mark.parametrize("moment", [inside_create, formed_first])
def test_t9_after_the_word_to_go_the_restart_begins_with_the_boundarys_own_state(
    moment: Callable[[World], bool],
) -> None:
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


def restarted_in_mid_segment(*spared: str) -> World:
    """A job whose storage takes longer for a commit than a segment does; b dies well after the third boundary."""
    world = World("ab", segments=True, slow_storage=True, recovery="restart")
    until(world, lambda: len(worker(world, A).applied) == len(worker(world, B).applied) == 4)
    until(world, lambda: worker(world, A).doing == worker(world, B).doing == "wait")
    for name in {A, B} - {*spared}:
        world.nodes[name].safe = None
    worker(world, B).exit(-9)
    return finished(world)


def test_a_restart_costs_at_most_a_segment_however_slow_the_storage_is() -> None:
    assert len(trained_twice(restarted_in_mid_segment(A, B))) == 1, "the step that b died in"


def test_when_the_node_that_kept_the_boundarys_state_is_gone_the_restart_takes_the_last_commit() -> None:
    assert len(trained_twice(restarted_in_mid_segment(B))) == 5


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


def taken(line: Lineage, generation: int, position: Position) -> str | None:
    return choose_origin(None, line, {A: hello(generation, position)}, set()).safe


def test_a_safe_state_of_a_past_that_was_undone_is_never_taken() -> None:
    """Step 2 was trained by generation 1 and, after a fall back to step 1, again by generation 4: their states may
    differ.
    """
    line = Lineage()
    for number, position in ((1, START), (2, TWO), (3, ONE), (4, TWO), (5, TWO)):
        line = line.add_generation(number, position)
    assert {generation: taken(line, generation, TWO) for generation in (1, 2, 3, 4, 5, 6)} == {
        1: None,
        2: None,
        3: "5f",
        4: "5f",
        5: "5f",
        6: None,
    }
    assert taken(line, 1, ONE) == "5f", "what generation 1 had trained before the fall back still counts"
    assert taken(line, 5, ONE) is None, "it began after that"


@given(starts=st.lists(st.integers(0, 9), max_size=12))
def test_a_safe_state_counts_exactly_while_nothing_before_it_was_undone(starts: list[int]) -> None:
    """Each generation trains on to step 9 and keeps a state at every boundary, of which the next generation's start
    says how many count.
    """
    line = Lineage()
    for number, step in enumerate(starts):
        line = line.add_generation(number, Position(epoch=0, offset=2 * step, step=step))
    for generation, start in enumerate(starts):
        kept = [Position(epoch=0, offset=2 * step, step=step) for step in range(start, 10)]
        counting = [position.step for position in kept if taken(line, generation, position)]
        assert counting == list(range(start, min([9, *starts[generation + 1 :]]) + 1))


def test_the_furthest_of_several_safe_states_is_taken() -> None:
    line = Lineage().add_generation(1, START)
    ready = {A: hello(1, ONE, "a1"), B: hello(1, TWO, "b2"), C: hello(1, ONE, "c1")}
    assert choose_origin(None, line, ready, set()) == Origin(TWO, safe="b2", source=B)
    assert choose_origin(None, line, ready, {(B, "b2")}) == Origin(ONE, safe="a1", source=A)
    assert choose_origin((ONE, "commit"), line, ready, {(B, "b2")}) == Origin(ONE, commit="commit")


def test_a_job_of_many_generations_remembers_the_last_ones() -> None:
    line = Lineage()
    for number in range(3 * GENERATIONS):
        line = line.add_generation(number, ONE)
    assert [taken(line, number, ONE) for number in (0, 2 * GENERATIONS, 3 * GENERATIONS - 1)] == [None, "5f", "5f"]
    assert len(line.starts) == GENERATIONS


def test_a_commit_that_is_as_far_as_the_safe_state_is_taken() -> None:
    """Both are whole; the commit is where everybody can read it."""
    line = Lineage().add_generation(1, TWO)
    ready = {A: hello(1, TWO)}
    assert choose_origin((TWO, "c2"), line, ready, set()) == Origin(TWO, commit="c2")
    assert choose_origin((ONE, "c1"), line, ready, set()) == Origin(TWO, safe="5f", source=A)
    assert choose_origin((ONE, "c1"), line, ready, {(A, "5f")}) == Origin(ONE, commit="c1")
