"""Several devices in each worker, as scripts have them: a batch that divides among the devices of one process does not
divide any more among those of three.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from idioms import CROSS, EPOCHS, Rows, labels, numbers, weights
from mxnet import autograd, gluon
from mxnet.gluon.utils import split_and_load
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

DEVICES = [mx.cpu(0), mx.cpu(1), mx.cpu(2)]
EVEN, RAGGED = 36, 35  # samples; each batch of the first divides among the devices
BATCH = 9
COURSES = [
    ({0: 1}, [], 2),
    ({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1),
    ({0: 7}, [Death(6, 0)], None),
]


class Devices(Plain):
    """Gluon's Trainer sums over its devices with a store of its own."""

    def trainer(self, params: Any, optimizer: Any, options: Any = None, **more: Any) -> Any:
        return gluon.Trainer(params, optimizer, options, kvstore="device", update_on_kvstore=False)


def on_devices(outputs: int = 3) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(5, activation="tanh"), gluon.nn.Dense(outputs))
    net.initialize(ctx=DEVICES)
    net(mx.nd.zeros((1, 4)))
    rng = np.random.default_rng(1)
    for param in net.collect_params().values():
        param.set_data(mx.nd.array(rng.normal(scale=0.4, size=param.shape)))
    return net


def data(samples: int) -> Rows:
    return Rows(numbers(samples, 4), labels(3, shape=(samples,)))


def of_sums(job: Any, samples: int = EVEN, epochs: int = EPOCHS, **split: Any) -> list[Any]:
    """GluonCV's train_cifar10: split_and_load as it is, which takes even batches alone."""
    net = on_devices()
    trainer = job.trainer(net.collect_params(), "nag", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(epochs, samples=samples, global_batch=BATCH):
        for batch in epoch.batches(data(samples)):
            parts = split_and_load(batch[0], ctx_list=DEVICES, batch_axis=0, **split)
            targets = split_and_load(batch[1], ctx_list=DEVICES, batch_axis=0, **split)
            with autograd.record():
                losses = [CROSS(net(x), y) for x, y in zip(parts, targets, strict=True)]
            for loss in losses:
                loss.backward()
            trainer.step(BATCH)
    return weights(net)


def of_means(job: Any, split: Any = split_and_load, means: int = 1, **options: Any) -> list[Any]:
    net = on_devices()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=EVEN, global_batch=BATCH, **options):
        for x, y in epoch.batches(data(EVEN)):
            with autograd.record():
                pairs = zip(split(x, DEVICES), split(y, DEVICES), strict=True)
                losses = [CROSS(net(x), y).mean() for x, y in pairs]
            autograd.backward(losses)
            trainer.step(means)
    return weights(net)


@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), COURSES)
def test_t2_a_share_that_does_not_divide_among_the_devices_trains_as_the_whole_batch_would(
    plan: dict[int, int], deaths: list[Death], segment_steps: int | None
) -> None:
    all_close(Conductor(plan, deaths, segment_steps).run(of_sums), of_sums(Devices()))


def test_t2_a_ragged_last_batch_is_split_as_the_script_says() -> None:
    def script(job: Any) -> list[Any]:
        return of_sums(job, RAGGED, even_split=False)

    all_close(Conductor({0: 1, 4: 3, 8: 4}, [Death(5, 1)], 1).run(script), script(Devices()))


@pytest.mark.parametrize("means", [1, len(DEVICES)])
@pytest.mark.parametrize("options", [{}, {"local_batch_at_most": 2}])
@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), COURSES)
def test_t2_means_on_uneven_devices_count_each_sample_alike(
    plan: dict[int, int], deaths: list[Death], segment_steps: int | None, options: dict[str, Any], means: int
) -> None:
    """What is differentiated is a mean for each device; some divide by their number, too."""
    expected = of_means(Devices(), means=means)
    all_close(Conductor(plan, deaths, segment_steps).run(lambda job: of_means(job, means=means, **options)), expected)


def of_two_nets(job: Any, samples: int = 30) -> list[Any]:
    """A GAN; in an epoch's last batch a worker of three has a sample for one device."""
    generator, critic, bce = on_devices(outputs=4), on_devices(outputs=1), gluon.loss.SigmoidBCELoss()
    makes = job.trainer(generator.collect_params(), "adam", {"learning_rate": 0.02})
    judges = job.trainer(critic.collect_params(), "adam", {"learning_rate": 0.02})

    def judge(x: Any, right: float) -> Any:
        out = critic(x)
        return bce(out, mx.nd.ones_like(out) * right)

    for epoch in job.epochs(EPOCHS, samples=samples, global_batch=BATCH):
        for x, z in epoch.batches(Rows(numbers(samples, 4), numbers(samples, 4, seed=9))):
            real, noise = split_and_load(x, DEVICES), split_and_load(z, DEVICES)
            with autograd.record():
                losses = [judge(a, 1) + judge(generator(b).detach(), 0) for a, b in zip(real, noise, strict=True)]
            autograd.backward(losses)
            judges.step(BATCH)
            with autograd.record():
                losses = [judge(generator(b), 1) for b in noise]
            autograd.backward(losses)
            makes.step(BATCH)
    return weights(generator, critic)


@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), [({0: 3}, [], 2), COURSES[1]])
def test_t2_what_a_generators_backward_pass_leaves_in_its_critic_is_in_no_later_sum(
    plan: dict[int, int], deaths: list[Death], segment_steps: int | None
) -> None:
    """A device without samples held it, and added it again to the next batch's."""
    all_close(Conductor(plan, deaths, segment_steps).run(of_two_nets), of_two_nets(Devices()))


def test_arrays_of_numpys_kind_are_summed_over_the_devices_of_a_worker_alone() -> None:
    """d2l's scripts call npx.set_np(), and operators do not mix the two kinds."""
    store, arrays = ElasticKVStore(None), [mx.np.ones(3), mx.np.arange(3)]
    store.pushpull("0", arrays)
    assert [array.asnumpy().tolist() for array in arrays] == [[1, 2, 3]] * 2
    assert {type(array) for array in arrays} == {mx.np.ndarray}
    store.pushpull("0", arrays[0], out=(out := mx.np.zeros(3)))
    assert out.asnumpy().tolist() == [1, 2, 3]


def by_hand(array: Any, devices: list[Any]) -> list[Any]:
    return [array[i::3].as_in_context(device) for i, device in enumerate(devices)]


def test_means_of_slices_that_nobody_knows_are_refused_in_the_first_batch() -> None:
    with pytest.raises(ValueError, match=r"split_and_load.*or leave \.mean\(\)"):
        of_means(ElasticJob.join(), by_hand)


def test_means_that_add_up_over_batches_are_refused_before_the_first_one() -> None:
    job, net = ElasticJob.join(), on_devices()
    job.trainer(net.collect_params(), "sgd", loss="mean", accumulate=2)
    with pytest.raises(ValueError, match="loss='mean' where gradients add up"):
        next(iter(job.epochs(1, samples=EVEN, global_batch=BATCH)))


def test_outside_of_a_batch_in_hand_gluon_splits_as_ever() -> None:
    """A validation that was refused in one process is refused here: its numbers would be of other slices."""
    seen = []
    with pytest.raises(ValueError, match="cannot be evenly split"):
        split_and_load(mx.nd.ones((7, 2)), DEVICES)
    of_sums(ElasticJob.join(), epochs=1)
    with pytest.raises(ValueError, match="cannot be evenly split"):
        split_and_load(mx.nd.ones((7, 2)), DEVICES)
    seen += [part.shape for part in split_and_load(mx.nd.ones((7, 2)), DEVICES, even_split=False)]
    assert seen == [(3, 2), (2, 2), (2, 2)]
