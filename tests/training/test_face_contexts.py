"""Several devices in one worker: the same mathematics as one, also when the last batch is too short for all of them."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.batches import ArrayBatches
from dyntrain.training.worker.data.contexts import GPU_COUNT_VARIABLE, choose_contexts, spread
from mxnet import autograd, gluon


def train(contexts: list[Any]) -> list[Any]:
    """The weights after two epochs of seven samples, two in a step, so that the last step has one."""
    rng = np.random.default_rng(7)
    data = ArrayBatches(rng.normal(size=(7, 6)).astype(np.float32), rng.integers(0, 3, 7).astype(np.int32))
    mx.random.seed(1)
    net = gluon.nn.Dense(3)
    net.initialize(mx.init.Xavier(), ctx=contexts)
    net(mx.nd.zeros((1, 6), ctx=contexts[0]))
    job, loss_function = ElasticJob.join(), gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(2, samples=7, global_batch=2, seed=3):
        for batch in epoch.batches(data):
            with autograd.record():
                losses = [loss_function(net(x), y) for x, y in spread(batch, contexts)]
            autograd.backward(losses)
            trainer.step(len(batch[0]))
    copies = [[copy.asnumpy() for copy in param.list_data()] for param in net.collect_params().values()]
    assert all(np.array_equal(same[0], copy) for same in copies for copy in same), "every device holds the same"
    return [same[0] for same in copies]


def test_face_two_devices_train_to_the_weights_of_one() -> None:
    one, two = train([mx.cpu(0)]), train([mx.cpu(0), mx.cpu(1)])
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(one, two, strict=True))


def test_face_gpus_are_chosen_by_option_then_by_environment_else_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPU_COUNT_VARIABLE, "2")
    assert choose_contexts(None) == [mx.gpu(0), mx.gpu(1)]
    assert choose_contexts("1,3") == [mx.gpu(1), mx.gpu(3)]
    assert choose_contexts("") == [mx.cpu()], "what the shell makes of `seq` on a node without one"
    monkeypatch.setenv(GPU_COUNT_VARIABLE, "0")
    assert choose_contexts(None) == [mx.cpu()]
    with pytest.raises(ValueError, match="--gpus"):
        choose_contexts("all")
