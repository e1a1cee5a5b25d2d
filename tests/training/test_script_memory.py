"""What a script keeps in variables and decides by: a worker that joins without it would set another rate than the
others, and the weights would part without a word.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START
from dyntrain.training.worker.state.memory import MAX_ARRAY_VALUES, MAX_JSON_CHARACTERS, Memories, Memory
from dyntrain.training.worker.state.training_state import TrainingState
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Hook, data, mlp, nothing, train
from mxnet import autograd

import mxnet as mx  # isort: skip

PER_EPOCH = -(-SAMPLES // BATCH)
STEPS = EPOCHS * PER_EPOCH
COURSES = [
    pytest.param({0: 2}, (), 1, id="undisturbed"),
    pytest.param({0: 1, 5: 3, 9: 2}, (), 1, id="1-3-2"),
    pytest.param({0: 1, 4: 3, 8: 2}, (), None, id="1-3-2-at-ends-of-epochs"),
    pytest.param({0: 3}, (Death(6, 1),), 1, id="lost-before-its-gradients"),
    pytest.param({0: 3}, (Death(6, 0, moment="applied"),), 1, id="lost-after-the-sums"),
    pytest.param({0: 3}, (Death(4, 2), Death(5, 0, moment="late"), Death(7, 1)), 1, id="several"),
]


def trained(job: Any, begins: Hook = nothing, after: Hook = nothing, ends: Hook = nothing, **options: Any) -> None:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    train(job, net, trainer, begins=begins, after=after, ends=ends, **options)


def everything(job: Any, **options: Any) -> dict[str, Any]:
    """Counted by batch, changed in place, by an alias, where an epoch begins, which a joiner does once more, and where
    it ends.
    """
    memory = job.memory(steps=0, history=[], rate=1.0, best=float("inf"), seen=(), ends=[])
    alias = memory.ends

    def begins(epoch: Any) -> None:
        memory.rate *= 0.5
        memory.history.append((int(epoch), memory.steps))

    def batch(epoch: Any) -> None:
        memory.steps += 1
        memory.seen = (*memory.seen, epoch.step_number)

    def ends(epoch: Any) -> None:
        alias.append({"epoch": epoch, "steps": np.float32(memory.steps)})
        memory.best = min(memory.best, 10.0 - epoch)

    trained(job, begins, batch, ends, **options)
    return {name: getattr(memory, name) for name in dir(memory)}


EVERYTHING = {
    "best": 10.0 - (EPOCHS - 1),
    "ends": [{"epoch": epoch, "steps": (epoch + 1) * PER_EPOCH} for epoch in range(EPOCHS)],
    "history": [(epoch, epoch * PER_EPOCH) for epoch in range(EPOCHS)],
    "rate": 0.5**EPOCHS,
    "seen": tuple(range(STEPS)),
    "steps": STEPS,
}


@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), COURSES)
def test_memory_is_what_one_undisturbed_worker_would_have_whoever_joins_or_dies(
    plan: dict[int, int], deaths: tuple[Death, ...], segment_steps: int | None
) -> None:
    results = Conductor(plan, deaths, segment_steps=segment_steps).run(everything)
    assert results
    for each in results:
        assert each == EVERYTHING
        kinds = {type(entry) for entry in each["history"]} | {type(entry["steps"]) for entry in each["ends"][:-1]}
        assert kinds == {tuple, float}, "the same on those that were there and those that joined"
    assert everything(ElasticJob.join()) == EVERYTHING


def test_a_batch_that_comes_in_parts_is_one_step_to_memory() -> None:
    """Workers have unequal numbers of parts: what each counted would part them."""
    assert (
        Conductor({0: 2, 6: 3}, segment_steps=1).run(lambda job: everything(job, local_batch_at_most=1))
        == [EVERYTHING] * 3
    )


@pytest.mark.parametrize("after", [2, 3], ids=["two-go-on", "one-comes-in-its-place"])
def test_the_end_of_an_epoch_counts_once_though_its_last_step_lost_a_worker(after: int) -> None:
    """On who comes in its place, too, which runs none of the script's lines there."""
    lost = Death(PER_EPOCH - 1, 2, moment="applied")
    assert Conductor({0: 3, PER_EPOCH: after}, (lost,), segment_steps=1).run(everything) == [EVERYTHING] * after


def test_gradients_that_add_up_over_a_boundary_keep_what_the_script_counted() -> None:
    def script(job: Any) -> Any:
        memory = job.memory(batches=0, updates=0)
        net = mlp()
        net.collect_params().setattr("grad_req", "add")
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for i, (x, y) in epoch.enumerate(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                memory.batches += 1
                if i % 2:
                    trainer.step(2 * BATCH)
                    memory.updates += 1
                    net.collect_params().zero_grad()
        return memory.batches, memory.updates

    for plan, deaths in (({0: 2, 5: 3}, ()), ({0: 3}, (Death(7, 1),))):
        assert set(Conductor(plan, deaths, segment_steps=1).run(script)) == {(STEPS, STEPS // 2)}


def test_memory_outlives_all_workers() -> None:
    """A process that is started again finds its own kinds of values, made again from a commit."""

    def script(job: Any) -> Any:
        first = {"weights": mx.nd.zeros(2), "counts": np.zeros(2), "table": {3: "x"}}
        memory = job.memory(best=0.0, none=None, pair=(0, 0), **first)
        counts, table = memory.counts, memory.table
        began: list[float] = []

        def begins(epoch: Any) -> None:
            began.append(memory.best)

        def batch(epoch: Any) -> None:
            memory.best += 0.5
            memory.none = memory.weights = mx.nd.ones(2) * memory.best
            counts[:] += 1
            memory.pair = (epoch.step_number, [(1, 2)])
            table[epoch.step_number] = "y"

        trained(job, begins, batch)
        return began[0], memory

    handing_over = Conductor({0: 2, 6: 1}, segment_steps=1)
    handing_over.run(script)
    (position, block), *_ = handing_over.blocks.items()
    for best, memory in Conductor({0: 2}, segment_steps=1, start=block).run(script):
        assert best == position.step / 2
        assert memory.best == STEPS / 2
        assert memory.counts.tolist() == [STEPS] * 2
        assert memory.table == {**dict.fromkeys(range(STEPS), "y"), 3: "y"}
        assert memory.pair == (STEPS - 1, [(1, 2)])
        assert isinstance(memory.none, mx.nd.NDArray)
        assert memory.weights.asnumpy().tolist() == [STEPS / 2] * 2


def test_a_commit_of_a_script_that_kept_less_leaves_what_it_did_not_know() -> None:
    held = Memories()
    held.add(memory := Memory(best=1.0, patience=5))
    held.recall({})
    assert (memory.best, memory.patience) == (1.0, 5)
    held.recall({"memory": {"best": 2.0, "dropped": 3}})
    assert (memory.best, memory.patience) == (2.0, 5)
    own: dict[str, Any] = {}
    held.keep(own)
    assert own == {"memory": {"best": 2.0, "patience": 5}}


def checked(**values: Any) -> dict[str, str]:
    state = TrainingState(net := mlp(), ElasticJob.join().trainer(net.collect_params(), "sgd", {}))
    held = Memories()
    held.add(Memory(**values))
    held.keep(state.own)
    return {name: check for name, check in state.sampled_checksums(START) if name.startswith("job.memory.")}


def test_memory_that_differs_between_workers_is_found_at_the_next_boundary_by_its_name() -> None:
    one, other = checked(best=0.5, patience=5, rows=[1]), checked(best=0.75, patience=5, rows=[2])
    assert {name for name, check in one.items() if other[name] != check} == {"job.memory.best", "job.memory.rows"}
    assert "job.memory.patience" in one


@pytest.mark.parametrize(
    ("one", "other"),
    [(0, 0.0), (0.0, -0.0), (True, 1), ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}), (float("nan"), float("nan"))],
)
def test_what_is_equal_to_python_is_no_difference(one: Any, other: Any) -> None:
    assert checked(value=one, last=1) == checked(last=1, value=other)


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [Colour.RED, np.float32(0.5), np.int64(3), np.bool_(True)])
def test_a_number_is_the_same_plain_one_on_all_workers(value: Any) -> None:
    assert type(Memory(value=value).value) in (bool, int, float)


@pytest.mark.parametrize(
    "value",
    [mlp, np.zeros(MAX_ARRAY_VALUES + 1), np.array(["a"]), np.complex64(1), {(1, 2): 3}, {True: 1}, [object()], {1, 2}],
    ids=["function", "large", "texts", "complex", "keys", "truth-as-key", "within", "set"],
)
def test_what_cannot_travel_is_refused_by_name_when_it_is_set(value: Any) -> None:
    memory = Memory(best=0.0)
    with pytest.raises(ValueError, match=r"job\.memory\.best: "):
        memory.best = value
    assert memory.best == 0.0


def test_what_cannot_be_in_memory_is_refused_by_name() -> None:
    job = ElasticJob.join()
    memory = job.memory(best=0.0, history=[])
    with pytest.raises(AttributeError, match=r"no 'bset'.*job\.memory\(bset=\.\.\.\)"):
        memory.bset = 1.0
    with pytest.raises(AttributeError, match="no 'bset'"):
        _ = memory.bset
    with pytest.raises(ValueError, match="underscore"):
        job.memory(_values=1)
    with pytest.raises(ValueError, match="give each name only once"):
        job.memory(best=1.0)
    with pytest.raises(ValueError, match=r"job\.memory\.history: object is no number"):
        trained(job, lambda epoch: memory.history.append(object()))
    with pytest.raises(RuntimeError, match="within the loop"):
        job.memory(late=1)


def test_more_than_can_travel_with_every_state_is_refused_with_what_to_do() -> None:
    job = ElasticJob.join()
    memory = job.memory(history=[])
    with pytest.raises(ValueError, match=rf"below {MAX_JSON_CHARACTERS}.*job\.output"):
        trained(job, lambda epoch: memory.history.append("x" * MAX_JSON_CHARACTERS))


@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), COURSES)
def test_what_all_draw_and_count_by_is_the_same_on_all_and_after_every_loss(
    plan: dict[int, int], deaths: tuple[Death, ...], segment_steps: int | None
) -> None:
    def script(job: Any, seed: int = 5) -> Any:
        drawn: dict[Any, Any] = {}

        def begins(epoch: Any) -> None:
            drawn["epoch", int(epoch)] = epoch.random("mask").random()

        def batch(epoch: Any) -> None:
            one, other = epoch.random("one").random(), epoch.random("other").random()
            assert one == epoch.random("one").random()
            drawn[epoch.step_number] = (one, other)

        trained(job, begins, batch, seed=seed)
        return drawn

    alone = script(ElasticJob.join())
    assert len(alone) == STEPS + EPOCHS
    assert len(
        {*alone.values(), *(number for pair in alone.values() if isinstance(pair, tuple) for number in pair)}
    ) == (3 * STEPS + EPOCHS), "each name, step and epoch has draws of its own"
    assert not set(alone.values()) & set(script(ElasticJob.join(), seed=6).values())
    for draws in Conductor(plan, deaths, segment_steps=segment_steps).run(script):
        assert draws.items() <= alone.items()
