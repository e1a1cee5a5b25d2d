"""A forward pass that does not train leaves weights of a convolution in a layout of oneDNN's, into which MXNet copies
nothing if they have three or five dimensions. An example that is passed through a new net does so, and a validation.
"""

from __future__ import annotations

from typing import Any

import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.worker.state.slots import overwrite, slot
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, labels, numbers, weights
from mxnet import autograd, gluon
from mxnet.gluon import nn
from test_script_idioms import all_close

import mxnet as mx  # isort: skip
import numpy as np

CHANNELS, FILTERS, TIMES = 16, 32, 8


def series() -> Rows:
    return Rows(numbers(SAMPLES, CHANNELS, TIMES), labels(3))


def convolution(seed: int) -> Any:
    net = nn.HybridSequential()
    net.add(nn.Conv1D(FILTERS, 3, in_channels=CHANNELS, activation="tanh"), nn.GlobalAvgPool1D(), nn.Dense(3))
    net.initialize()
    rng = np.random.default_rng(seed)
    for name, param in net.collect_params().items():
        if "dense" in name and name.endswith("weight"):
            param.shape = (3, FILTERS)
            param._finish_deferred_init()
        param.set_data(mx.nd.array(rng.normal(scale=0.3, size=param.shape)))
    net(mx.nd.zeros((1, CHANNELS, TIMES)))
    return net


def validated(net: Any) -> None:
    assert np.isfinite(net(mx.nd.array(numbers(5, CHANNELS, TIMES, seed=9))).asnumpy()).all()


def forecast(job: Any) -> Any:
    """GluonTS's and GluonNLP's time series: LSTNet, temporal convolutions."""
    net = convolution(1)
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(series()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        validated(net)
    return weights(net)


def teaches(job: Any) -> Any:
    """A mean teacher: the average of the weights is in a net of its own, which labels in predict mode."""
    net, teacher = convolution(1), convolution(1)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    job.keep(teacher.collect_params())
    near = gluon.loss.L2Loss()
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(series()):
            expected = teacher(x)
            with autograd.record():
                outputs = net(x)
                loss = CROSS(outputs, y) + near(outputs, expected)
            loss.backward()
            trainer.step(BATCH)
            pairs = zip(net.collect_params().values(), teacher.collect_params().values(), strict=True)
            for student, mean in pairs:
                average = mean.data()
                average *= 0.8
                average += 0.2 * student.data()
            validated(teacher)
    return weights(net, teacher)


@pytest.mark.parametrize("segment", [1, 2, None])
@pytest.mark.parametrize("script", [forecast, teaches], ids=lambda script: script.__name__)
def test_t2_convolutions_over_time_arrive_on_joiners_and_go_back_after_void_steps(script: Any, segment: Any) -> None:
    expected = script(Plain())
    deaths = [Death(5, 1), Death(6, 0, 0, "applied")]
    all_close(Conductor({0: 1, 4: 4, 6: 3, 7: 2}, deaths, segment).run(script), expected)


@pytest.mark.parametrize("shape", [(32, 16, 3), (32, 16, 3, 3, 3), (32, 16, 3, 3)], ids=str)
def test_t2_weights_in_a_layout_of_onednns_are_overwritten_and_multiply_as_before(shape: tuple[int, ...]) -> None:
    layer = {3: nn.Conv1D, 4: nn.Conv2D, 5: nn.Conv3D}[len(shape)]
    x = mx.nd.array(numbers(2, 16, *[6] * (len(shape) - 2)))
    outputs = []
    for way in ("trains at first", "slot", "overwrite"):
        net = layer(32, 3, use_bias=False, in_channels=16)
        net.initialize()
        new = numbers(*shape, seed=3)
        weight = net.weight.data()
        if way == "trains at first":
            net.weight.set_data(mx.nd.array(new))
        else:
            net(x).wait_to_read()
            if way == "slot":
                slot("p0", "weight", [weight]).write(new.view(np.uint8).reshape(-1))
            else:
                overwrite(weight, mx.nd.array(new))
        np.testing.assert_array_equal(weight.asnumpy(), new)
        outputs.append(net(x).asnumpy())
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize("channels", [640, 768, 896, 1024])
def test_t2_weights_that_a_pass_under_way_lays_out_anew_are_read_right(channels: int) -> None:
    """Read too soon they are wrong, or the process is gone: the first pass of a kind is slow enough to show it."""
    net = nn.Conv1D(channels, 3, in_channels=channels)
    net.initialize()
    example, weight = mx.nd.ones((1, channels, 4)), net.weight.data()
    expected = weight.asnumpy()
    mx.nd.waitall()
    net(example)
    mx.nd.waitall()
    with autograd.record():
        net(example)
    raw = np.empty(expected.nbytes, np.uint8)
    slot("p0", "weight", [weight]).read(raw)
    assert raw.tobytes() == expected.tobytes()
