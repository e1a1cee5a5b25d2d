"""AMP as GluonNLP's pretraining uses it, in a process of its own: `amp.init` changes MXNet's functions for good.

One sample is so large that its gradients overflow: every worker must skip that step, also those that do not have it.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, labels, mlp, numbers, weights
from mxnet import autograd, gluon
from mxnet.contrib import amp


def script(job: Any) -> Any:
    features = numbers(SAMPLES, 4)
    features[7] = 1e30
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "adam", {"learning_rate": 0.02})
    amp.init_trainer(trainer)
    trainer._amp_loss_scaler._scale_seq_len = 2  # so that the scale changes within a few steps
    trainer._amp_loss_scaler._loss_scale = trainer._amp_loss_scaler._next_loss_scale = 64.0
    scales = []
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(Rows(features, labels(3))):
            with autograd.record():
                loss = CROSS(net(x), y)
                with amp.scale_loss(loss, trainer) as scaled:
                    autograd.backward(scaled)
            trainer.allreduce_grads()
            amp.unscale(trainer)
            gluon.utils.clip_global_norm([p.grad() for p in params.values()], 3.0, check_isfinite=False)
            trainer.update(BATCH)
        scales.append(trainer._amp_loss_scaler.loss_scale)
    return weights(net), scales


def main() -> None:
    amp.init(target_precision_ops=[])  # float16 layers are for GPUs; what is tried here is the loss scale
    expected, scales = script(Plain())
    assert len(set(scales)) > 1, f"the scale must move to prove anything: {scales}"
    for plan, deaths in (
        ({0: 3}, []),
        ({0: 1, 4: 3, 8: 2}, [Death(5, 1)]),
        ({0: 3, 6: 2}, [Death(6, 0, 0, "applied")]),
    ):
        for reached, theirs in Conductor(plan, deaths, 1).run(script):
            assert theirs == scales[-len(theirs) :], f"loss scales {theirs}, in one process {scales}"
            for a, b in zip(reached, expected, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-3)
    print("EQUAL")  # noqa: T201  # for the test


if __name__ == "__main__":
    mx.random.seed(1)
    main()
