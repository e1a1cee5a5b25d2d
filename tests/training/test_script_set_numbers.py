"""Parameters that do not train, and that a script itself sets in its batches: ranges of a quantization, a codebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START
from dyntrain.training.worker.state.training_state import TrainingState
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, initialise, weights
from mxnet import autograd
from mxnet.gluon import nn
from test_script_idioms import all_close

import mxnet as mx  # isort: skip


class Ranged(nn.Block):
    """Its inputs, divided by how large they are for the most part."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.largest = self.params.get("largest", shape=(1,), init="ones", differentiable=False)
            self.dense = nn.Dense(3, in_units=4)

    def forward(self, x: Any) -> Any:
        self.seen = x.abs().max(axis=1).asnumpy()
        return self.dense(x / float(self.largest.data().asscalar()))


def ranged(job: Any, summed: bool, after: bool, whole: int = BATCH) -> list[Any]:
    net = initialise(Ranged(), mx.nd.zeros((1, 4)))
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=whole):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            mean = epoch.sum(float(net.seen.sum())) / epoch.sum(len(x)) if summed else float(net.seen.mean())
            value = 0.9 * net.largest.data() + 0.1 * mean
            if not after:
                net.largest.set_data(value)
            loss.backward()
            trainer.step(whole)
            if after:
                net.largest.set_data(value)
    return weights(net)


@pytest.mark.parametrize("after", [False, True], ids=["before-the-step", "after-it"])
def test_t2_what_is_set_from_all_samples_trains_as_in_one_process_and_is_told_of_nothing(
    after: bool, reported_codes: Callable[[], list[str]]
) -> None:
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: ranged(job, True, after))
    all_close(results, ranged(Plain(), True, after))
    results = Conductor({0: 7}, [Death(6, 0, 1)], None).run(lambda job: ranged(job, True, after))
    all_close(results, ranged(Plain(), True, after))
    assert not reported_codes()


@pytest.mark.parametrize("after", [False, True], ids=["before-the-step", "after-it"])
def test_t2_what_is_set_from_a_workers_own_samples_is_found(after: bool) -> None:
    """It is equal on all workers, or they go back: the job would end well with other weights on each."""
    with pytest.raises(AssertionError, match="replicas differ"):
        Conductor({0: 3}, [], 2).run(lambda job: ranged(job, False, after))


def test_what_differs_in_it_has_its_name() -> None:
    def state() -> tuple[Any, TrainingState]:
        with mx.name.NameManager():
            net = initialise(Ranged(), mx.nd.zeros((1, 4)))
        return net, TrainingState(net, ElasticJob.join().trainer(net.collect_params(), "sgd"))

    def different() -> list[str]:
        both = zip(mine.sampled_checksums(START), theirs.sampled_checksums(START), strict=True)
        return [name for (name, one), (_, other) in both if one != other]

    (net, mine), (other, theirs) = state(), state()
    other.largest.data()[:] = 2
    assert different() == [], "each worker's own"
    for one, each in ((net, mine), (other, theirs)):
        for array in (one.largest.data(), one.largest.data(), one.dense.weight.data()):
            each.script_sets(array)
        assert len(each.set_by_script) == 1, "a weight is trained, and alike anyway"
    assert different() == [net.largest.name]
    mine.install(theirs.pack(START))
    assert net.largest.data().asscalar() == 2
    assert mine.checks(mine.pack(START)) == mine.checks(theirs.pack(START))
