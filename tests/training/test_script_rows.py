"""`job.rows`: hidden states go on with their rows, whoever has them next."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death
from dyntrain.training.job import ElasticJob, PerWorker
from idioms import BATCH, CROSS, EPOCHS, LINES, ORDER, data, mlp, recurrent, truncated, weights
from mxnet import autograd, gluon
from test_script_idioms import CHANGES, all_close


def statically(also: int = 1) -> list[Any]:
    net = recurrent()
    if also > 1:
        net.collect_params().setattr("grad_req", "add")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore=None)
    loader = gluon.data.DataLoader(LINES, batch_sampler=ORDER)
    for _ in range(EPOCHS):
        hidden = net.rnn.begin_state(batch_size=BATCH)
        for i, (words, following) in enumerate(loader):
            hidden = [state.detach() for state in hidden]
            with autograd.record():
                output, hidden = net(words, hidden)
                loss = CROSS(output, following)
            loss.backward()
            if (i + 1) % also == 0:
                trainer.step(BATCH * also)
                net.collect_params().zero_grad()
    return [*weights(net), *(state.asnumpy() for state in hidden)]


@pytest.mark.parametrize("change", list(CHANGES))
def test_t2_truncated_back_propagation_gives_the_weights_and_states_of_one_process(change: str) -> None:
    plan, deaths, segment = CHANGES[change]
    all_close(Conductor(plan, deaths, segment).run(truncated), statically())


def test_t2_states_go_on_through_batches_without_an_update() -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(7, 1), Death(10, 0)], 1)
    all_close(conductor.run(lambda job: truncated(job, 2)), statically(2))


def test_t5_after_a_restart_in_mid_epoch_the_states_are_those_of_the_commit() -> None:
    first = Conductor({0: 2, 2: 1, 6: 3}, segment_steps=1)
    first.run(truncated)
    block = next(block for at, block in first.blocks.items() if at.step == 6)
    all_close(Conductor({0: 2}, segment_steps=3, start=block).run(truncated), statically())


def numbered(
    job: Any, shape: tuple[int, ...], axis: int, batches: list[list[int]], namespace: Any = mx.nd, **options: Any
) -> Any:
    """A script that adds a row's number and the batch's to the row; returns what the job has of all rows."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loader = job.loader([(x, i) for i, (x, _) in enumerate(data())], batch_sampler=batches)
    carried = job.rows(namespace.zeros(shape), axis)
    for _ in job.epochs(1, **options):
        for x, index in loader:
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            place = [1] * len(shape)
            place[axis] = len(x)
            number = namespace.array(index.asnumpy().reshape(place), dtype="float32")
            carried.mine = carried.mine * 2 + number
            trainer.step(len(x))
    return carried.whole[0].asnumpy()


@pytest.mark.parametrize("namespace", [mx.nd, mx.np], ids=["nd", "np"])  # d2l's scripts call npx.set_np()
@pytest.mark.parametrize(("shape", "axis"), [((4, 2), 0), ((2, 3, 4), 2)])
def test_rows_that_a_short_batch_has_not_stay_as_they_are(shape: tuple[int, ...], axis: int, namespace: Any) -> None:
    batches = [[0, 1, 2, 3], [4, 5], [6, 7, 8], [9]]
    expected = np.zeros(4)
    for batch in batches:
        expected[: len(batch)] = expected[: len(batch)] * 2 + batch
    place = [1] * len(shape)
    place[axis] = 4
    results = Conductor({0: 1, 1: 3}, [Death(2, 1)], 1).run(lambda job: numbered(job, shape, axis, batches, namespace))
    for result in [*results, numbered(ElasticJob.join(), shape, axis, batches, namespace)]:
        np.testing.assert_array_equal(result, np.broadcast_to(expected.reshape(place), shape))


@pytest.mark.parametrize(
    ("given", "axis"), [([], 0), (np.zeros((3, 2)), 0), (mx.nd.zeros(3), 1), ([mx.nd.zeros(3), mx.nd.zeros(4)], 0)],
    ids=["nothing", "numpy", "no such axis", "unequal"],
)  # fmt: skip
def test_what_has_no_rows_is_refused_where_it_is_given(given: Any, axis: int) -> None:
    with pytest.raises(ValueError, match=rf"job\.rows\(arrays, axis={axis}\)"):
        ElasticJob.join().rows(given, axis)


@pytest.mark.parametrize(
    ("options", "sampler", "says"),
    [
        ({"batching": PerWorker(BATCH)}, None, "PerWorker"),
        ({"local_batch_at_most": 2}, ORDER, "local_batch_at_most="),
        ({}, None, "no row continues a row of the previous"),
        ({}, [list(range(BATCH + 1))], rf"has {BATCH} rows, but a batch has {BATCH + 1} rows"),
    ],
    ids=["per worker", "parts", "drawn order", "larger batch"],
)
def test_where_no_row_follows_one_it_is_refused_before_the_first_step(options: Any, sampler: Any, says: str) -> None:
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd")
    job.rows(mx.nd.zeros((BATCH, 2)))
    job.loader(LINES, None if sampler else BATCH, batch_sampler=sampler)
    with pytest.raises(ValueError, match=says):
        next(job.epochs(1, **options))


def test_what_is_set_too_late_or_in_another_shape_says_so() -> None:
    job = ElasticJob.join()
    trainer = job.trainer((net := mlp()).collect_params(), "sgd")
    loader = job.loader(data(), batch_sampler=ORDER[:3])
    carried = job.rows(mx.nd.zeros((BATCH, 2)))
    with pytest.raises(RuntimeError, match="outside of the loop over the batches"):
        _ = carried.mine
    for _ in job.epochs(1, steps=1):
        for x, _y in loader:
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            with pytest.raises(ValueError, match=rf"must have shapes \[\({BATCH}, 2\)\]"):
                carried.mine = mx.nd.zeros((BATCH, 3))
            with pytest.raises(RuntimeError, match="within a batch"):
                carried.reset()
            trainer.step(BATCH)
            with pytest.raises(RuntimeError, match=r"after trainer\.step"):
                carried.mine = mx.nd.ones((BATCH, 2))
