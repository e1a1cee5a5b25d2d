"""A clip of gradients before they are summed is a clip of a worker's share: refused where it clips. What multiplies by
one number on all workers is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from mxnet.contrib.amp.amp import unscale
from mxnet.gluon.utils import clip_global_norm  # as a script that imports it by its name
from rule_reports import tells
from test_script_idioms import all_close


def train(change: Callable[[Any, Any], Any], net: Any = None, job: Any = None) -> list[Any]:
    """`change` is given the gradients and the trainer before each step, or makes the step itself and says True."""
    net, job = net or mlp(), job or ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if not change([p.grad() for p in net.collect_params().values()], trainer):
                trainer.step(BATCH)
    return weights(net)


def clips_each(gradients: Any, trainer: Any) -> None:
    for gradient in gradients:
        gradient[:] = mx.nd.clip(gradient, -1, 1)


def clips_into(gradients: Any, trainer: Any) -> None:
    for gradient in gradients:
        mx.nd.clip(gradient, -1, 1, out=gradient)


def clips_by_weights(gradients: Any, trainer: Any) -> None:
    """MXNet makes another object of a weight's gradient each time."""
    for param in trainer._params:
        param.data().grad[:] = mx.nd.clip(param.data().grad, -1, 1)


def halves(gradients: Any, trainer: Any) -> None:
    gradients[0] *= 0.5


def divides_all_of_it(gradients: Any, trainer: Any) -> None:
    gradients[0][:] /= 2


def adds_noise(gradients: Any, trainer: Any) -> None:
    gradients[-1] += mx.nd.random.normal(shape=gradients[-1].shape)


@pytest.mark.parametrize("change", [clips_each, clips_into, clips_by_weights])
def test_a_clip_of_a_share_is_refused_in_the_first_batch(change: Any) -> None:
    with pytest.raises(ValueError, match=r"py:\d+: DT301: the gradient of .*trainer\.allreduce_grads\(\), the change"):
        train(change)


def test_a_clip_between_batches_that_add_up_is_refused_too() -> None:
    def clips(gradients: Any, trainer: Any) -> bool:
        clips_each(gradients, trainer)
        return bool(next(number) % 2)

    net, number = mlp(), itertools.count(1)
    net.collect_params().setattr("grad_req", "add")
    with pytest.raises(ValueError, match="DT301"):
        train(clips, net)


def masks(gradients: Any, trainer: Any) -> None:
    """A row that is not to train, read before that."""
    assert gradients[0][:1].shape
    gradients[0] *= 0.5
    gradients[0][1:] = 0


def limits(gradients: Any, trainer: Any) -> None:
    clip_global_norm(gradients, 1e9)


@pytest.mark.parametrize("change", [halves, divides_all_of_it, masks, limits])
def test_what_multiplies_by_one_number_trains_on(change: Any, reported_codes: Any) -> None:
    train(change)
    assert not {"DT301", "DT302"} & set(reported_codes())


def scripted(change: Any) -> Any:
    return lambda job: train(change, job=job)


def test_t2_half_a_gradient_is_that_of_one_process() -> None:
    all_close(Conductor({0: 1, 2: 3}, [Death(3, 1)], 1).run(scripted(halves)), scripted(halves)(Plain()))


def clips_by_norm(gradients: Any, trainer: Any) -> None:
    """As d2l's grad_clipping, by way of parts. Each worker's share has another norm."""
    norm = float(sum((g**2).sum() for g in gradients).sqrt().asscalar())
    for gradient in gradients:
        gradient[:] *= 1e-3 / norm


def test_t2_a_clip_by_the_norm_of_a_share_is_told_of_and_stopped_by_the_votes_of_several() -> None:
    with tells("DT302"):
        train(clips_by_norm)
    with pytest.raises(UnequalRates, match=r"DT412: .*gradients before their sum"):
        Conductor({0: 3}).run(scripted(clips_by_norm))


def test_what_is_added_to_them_is_told_of() -> None:
    with tells("DT302", "dense1_bias"):
        train(adds_noise)


def clips_sums(gradients: Any, trainer: Any) -> bool:
    trainer.allreduce_grads()
    clip_global_norm(gradients, 1e-9)
    trainer.update(BATCH)
    halves(gradients, trainer)
    return True


def test_between_the_sum_and_the_update_they_may_be_changed_and_afterwards() -> None:
    for mine, untrained in zip(train(clips_sums), weights(mlp()), strict=True):
        np.testing.assert_allclose(mine, untrained, atol=1e-6)  # which would be 0.01 off without the clip


def zeroes(gradients: Any, trainer: Any) -> None:
    """Not what one would do with these: an array that no trainer has, and what is nothing."""
    net = mlp()
    for param in net.collect_params().values():
        param.grad()[:] *= 0.5
        param.data()[:] += 1
    gradients[0][:] = 0
    trainer._params[0].zero_grad()
    mx.nd.zeros_like(gradients[1], out=gradients[1])


def scales_back(gradients: Any, trainer: Any) -> None:
    trainer._scale = 1.0
    unscale(trainer)


@pytest.mark.parametrize("change", [zeroes, scales_back])
def test_what_is_the_same_for_a_share_as_for_the_sum_is_no_reason_to_refuse(change: Any) -> None:
    assert any(np.abs(mine - before).max() > 1e-3 for mine, before in zip(train(change), weights(mlp()), strict=True))


def test_once_a_job_has_broken_off_its_nets_gradients_are_the_scripts_own() -> None:
    net = mlp()
    with pytest.raises(ValueError, match="DT301"):
        train(clips_each, net)
    clips_each([net[0].weight.grad()], None)


def attacked(job: Any) -> list[Any]:
    """Samples that are moved by their own gradients, in place."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            x.attach_grad()
            for _ in range(2):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                x += 0.1 * x.grad
            trainer.step(BATCH)
    return weights(net)


def test_t2_samples_that_are_moved_by_their_own_gradients_train_as_in_one_process() -> None:
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(attacked), attacked(Plain()))
