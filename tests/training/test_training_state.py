"""The state that joiners receive and commits hold: if it is wrong, workers drift apart or a job resumes from
rubbish.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.state import training_state
from dyntrain.training.worker.state.block import StateError
from dyntrain.training.worker.state.equal import PLAIN_VALUES_LABEL, checksums
from dyntrain.training.worker.state.slots import same, write
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import autograd, gluon

AT = Position(epoch=2, offset=10, step=31)


def model(seed: int, hidden: int = 4, optimizer: str = "sgd") -> tuple[Any, Any, TrainingState]:
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(hidden), gluon.nn.BatchNorm(), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier())
    net(mx.nd.ones((1, 3)))
    options = {"learning_rate": 0.1} | ({"momentum": 0.9} if optimizer == "sgd" else {})
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {**options, "lr_scheduler": scheduler}, kvstore=None)
    return net, trainer, TrainingState(net, trainer)


def train(net: Any, trainer: Any, steps: int) -> None:
    for step in range(steps):
        with autograd.record():
            loss = (net(mx.nd.ones((4, 3)) * (step + 1)) ** 2).sum()
        loss.backward()
        trainer.step(4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_joiner_with_the_survivors_state_trains_on_exactly_like_it(optimizer: str) -> None:
    net, trainer, state = model(1, optimizer=optimizer)
    train(net, trainer, 5)
    other_net, other_trainer, other = model(2, optimizer=optimizer)
    assert other.install(state.pack(AT)) == AT
    assert checksums(other.pack(AT)) == checksums(state.pack(AT))
    train(net, trainer, 3)
    train(other_net, other_trainer, 3)
    assert checksums(other.pack(AT)) == checksums(state.pack(AT)), "momentum, update counts and schedule came along"


def test_the_digest_sees_parameters_optimizer_state_and_position() -> None:
    net, trainer, state = model(1)
    train(net, trainer, 2)
    before = checksums(state.pack(AT))
    assert checksums(state.pack(Position(epoch=2, offset=11, step=31))) != before
    trainer._updaters[0].states[0][:] += 1
    assert checksums(state.pack(AT)) != before, "momentum counts"


def test_each_check_is_of_the_array_or_the_numbers_that_it_names() -> None:
    net, trainer, state = model(1)
    train(net, trainer, 2)
    before = state.checks(state.pack(AT))
    assert len(dict(before)) == len(before)

    def changed() -> list[str]:
        return [name for was, (name, now) in zip(before, state.checks(state.pack(AT)), strict=True) if was[1] != now]

    weight, name = net[2].weight.data(), net[2].weight.name
    weight[0, 0] += 1
    assert changed() == [name]
    trainer._updaters[0].states[0][:] += 1
    assert changed() == [name, f"{trainer._params[0].name} in the optimizer"]
    trainer._optimizer.wd = 0.5
    assert changed()[0] == PLAIN_VALUES_LABEL


def test_what_is_looked_at_at_each_boundary_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator for each array, as for those on devices, would have everybody wait at each boundary."""
    net, trainer, state = model(1)
    train(net, trainer, 2)
    positions = [Position(epoch=0, offset=0, step=step) for step in range(20)]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(training_state, "byte_view", lambda array: None)
        by_operators = [state.sampled_checksums(at) for at in positions]
    monkeypatch.setattr(mx.nd, "take", None)
    assert [state.sampled_checksums(at) for at in positions] == by_operators
    assert len(set(by_operators)) > 1, "in time all values are looked at"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_arrays_are_the_same_bit_by_bit(dtype: str) -> None:
    array, other = mx.nd.ones((3, 5), dtype=dtype), mx.nd.ones((3, 5), dtype=dtype)
    assert same(array, other)
    other[2, 4] = 2
    assert not same(array, other)


def test_running_statistics_travel_but_may_differ_between_workers() -> None:
    net, trainer, state = model(1)
    train(net, trainer, 2)
    before = checksums(state.pack(AT))
    statistics = next(param for name, param in net.collect_params().items() if name.endswith("running_mean"))
    statistics.set_data(statistics.data() + 5)
    assert checksums(state.pack(AT)) == before
    other_net, _, other = model(2)
    other.install(state.pack(AT))
    theirs = next(param for name, param in other_net.collect_params().items() if name.endswith("running_mean"))
    assert np.allclose(theirs.data().asnumpy(), statistics.data().asnumpy())


def test_the_state_of_another_model_is_refused() -> None:
    _, _, state = model(1)
    _, _, larger = model(1, hidden=5)
    with pytest.raises(StateError, match="another model"):
        larger.install(state.pack(AT))


@pytest.mark.parametrize("damage", [lambda block: block[:-1], lambda block: b"", lambda block: b"\xff" * 64])
def test_a_damaged_state_is_refused(damage: Any) -> None:
    _, _, state = model(1)
    with pytest.raises(StateError):
        state.install(damage(bytes(state.pack(AT))))


def test_a_net_that_has_not_seen_an_example_is_an_error_that_says_what_to_do() -> None:
    net = gluon.nn.Dense(3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=None)
    with pytest.raises(ValueError, match="one example"):
        TrainingState(net, trainer)


@pytest.mark.parametrize("numpys", [False, True], ids=["nd", "np"])  # d2l's scripts call npx.set_np()
def test_a_joiner_that_has_tried_its_network_out_can_take_the_state(numpys: bool) -> None:
    """A forward pass leaves the weights of a convolution in a layout of MKL-DNN's, which a plain copy refuses."""
    with mx.util.np_shape(numpys), mx.util.np_array(numpys):
        net = gluon.nn.Conv2D(64, 3, in_channels=64)
        net.initialize()
        net.hybridize(static_alloc=True)
        for _ in range(2):
            net((mx.np if numpys else mx.nd).ones((2, 64, 16, 16))).wait_to_read()
        weight = net.weight.data()
        sent = np.arange(weight.size, dtype=np.float32)
        write(weight, sent.view(np.uint8))
        assert np.array_equal(weight.asnumpy().reshape(-1), sent)


def test_samples_of_equal_states_are_equal_and_one_changed_array_shows() -> None:
    """What workers compare at each boundary. The name is for people."""
    net, trainer, state = model(1)
    train(net, trainer, 1)
    _, _, joiner = model(2)
    joiner.install(state.pack(AT))
    before = state.sampled_checksums(AT)
    assert [check for _, check in before] == [check for _, check in joiner.sampled_checksums(AT)]
    net[0].bias.set_data(net[0].bias.data() + 1)
    changed = [name for (name, now), (_, then) in zip(state.sampled_checksums(AT), before, strict=True) if now != then]
    assert changed == [net[0].bias.name]
