"""What a worker has after it took over a state: what the other one had, and nothing of its own; or an error, where the
state is not one of its script.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.state.block import StateError
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import autograd, gluon

import mxnet as mx  # isort: skip

AT = Position(epoch=2, offset=10, step=31)
CONTEXTS = [mx.cpu(0), mx.cpu(1)]


def model(optimizer: str = "sgd", context: Any = None, **options: Any) -> tuple[Any, Any, TrainingState]:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4, in_units=3), gluon.nn.BatchNorm(in_channels=4), gluon.nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier(), ctx=context)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1, **options}, kvstore=None)
    return net, trainer, TrainingState(net, trainer)


def test_a_state_of_another_optimizer_is_refused_though_its_arrays_are_alike() -> None:
    """NAG's momentum in SGD's place."""
    _, _, nag = model("nag", momentum=0.9)
    _, _, sgd = model("sgd", momentum=0.9)
    with pytest.raises(StateError, match="of another model: layout"):
        sgd.install(nag.pack(AT))


def test_a_state_whose_optimizer_keeps_other_arrays_is_refused() -> None:
    _, _, adam = model("adam")
    block = bytes(adam.pack(AT))
    other = block.replace(b'["o0.0.0",', b'["o0.0.9",')
    assert other != block
    with pytest.raises(StateError, match="keeps other arrays than this script's"):
        adam.install(other)


@pytest.mark.parametrize("change", [lambda block: block[:-1], lambda block: block + b"\0"])
def test_a_state_of_another_length_than_its_arrays_have_is_refused(change: Any) -> None:
    _, _, state = model(momentum=0.9)
    with pytest.raises(StateError, match="cut short"):
        state.install(change(bytes(state.pack(AT))))


def test_what_the_job_itself_remembers_travels_with_the_state() -> None:
    _, _, one = model()
    _, _, other = model()
    one.own["memory"] = {"best": 3}
    other.own["memory"] = {"best": 1}
    other.install(one.pack(AT))
    assert other.own == {"memory": {"best": 3}}
    assert other.received is not None
    assert other.received["counts"] == one.scalars.capture()["counts"]


def test_of_what_is_frozen_over_there_no_optimizer_state_is_left_here() -> None:
    """Thawed later, its momentum would go on from another past on each worker."""
    _, theirs, _ = model(momentum=0.9)
    theirs._params[0].grad_req = "null"
    del theirs._updaters[0].states[0]
    _, mine, _ = model(momentum=0.9)
    receiver = TrainingState(None, mine)
    assert 0 in mine._updaters[0].states
    receiver.install(TrainingState(None, theirs).pack(AT))
    assert 0 not in mine._updaters[0].states
    assert mine._params[0].grad_req == "null"


def test_gradients_that_add_up_over_a_boundary_come_along_and_take_the_place_of_what_was_there() -> None:
    parts = [model() for _ in range(2)]
    for scale, (net, _, state) in zip((1.0, 5.0), parts, strict=True):
        net[2].weight.grad_req = "add"
        with autograd.record():
            loss = (net(mx.nd.ones((4, 3))) * scale).sum()
        loss.backward()
        state.carried.carry()
    (net, _, one), (other_net, _, other) = parts
    other.install(one.pack(AT))
    other.carried.resume(takes=True)
    assert np.array_equal(other_net[2].weight.grad().asnumpy(), net[2].weight.grad().asnumpy())
    one.drop_carried()
    other.install(one.pack(AT))
    other.carried.resume(takes=True)
    assert not other_net[2].weight.grad().asnumpy().any(), "the update that they were for was made over there"


def test_in_time_every_value_is_compared() -> None:
    """A few of each array at a boundary; of one place alone a difference elsewhere would never be found."""
    net, _, state = model()
    weight = net[2].weight
    before = {step: state.sampled_checksums(AT.model_copy(update={"step": step})) for step in range(40)}
    changed = weight.data().asnumpy().reshape(-1)
    for place in range(len(changed)):
        now = changed.copy()
        now[place] += 1
        weight.set_data(mx.nd.array(now.reshape(weight.shape)))
        steps = [
            step for step in before if state.sampled_checksums(AT.model_copy(update={"step": step})) != before[step]
        ]
        assert 0 < len(steps) < 40, place


def test_running_statistics_are_set_on_every_device() -> None:
    net, _, state = model(context=CONTEXTS)
    state.set_statistics(np.arange(4.0), np.arange(4.0) + 10)
    for context in CONTEXTS:
        assert net[1].running_mean.data(context).asnumpy().tolist() == [0, 1, 2, 3]
        assert net[1].running_var.data(context).asnumpy().tolist() == [10, 11, 12, 13]


def test_a_state_is_taken_over_on_every_device() -> None:
    net, _, one = model(context=CONTEXTS, momentum=0.9)
    other_net, other_trainer, other = model(context=CONTEXTS, momentum=0.9)
    one.trainers[0]._updaters[0].states[0][:] = 3.0
    other.install(one.pack(AT))
    for context in CONTEXTS:
        assert np.array_equal(other_net[0].weight.data(context).asnumpy(), net[0].weight.data(CONTEXTS[0]).asnumpy())
    assert [set(np.unique(each.states[0].asnumpy())) for each in other_trainer._updaters] == [{3.0}, {3.0}]


@pytest.mark.parametrize("optimizer", ["sgd", "nag"])
def test_in_mixed_precision_the_momentum_is_scaled_and_the_weights_beside_it_are_not(optimizer: str) -> None:
    net = gluon.nn.Dense(2, in_units=3, dtype="float16", use_bias=False)
    net.initialize(mx.init.Constant(0.5))
    options = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True}
    trainer = gluon.Trainer(net.collect_params(), optimizer, options, kvstore=None)
    state = TrainingState(net, trainer)
    kept = trainer._updaters[0].states[0]
    weights = next(part for part in kept if part.asnumpy().any())
    momentum = next(part for part in kept if not part.asnumpy().any())
    momentum[:] = 2.0
    state.optimizer_states.scale_momentum(3.0)
    assert set(np.unique(momentum.asnumpy())) == {6.0}
    assert set(np.unique(weights.asnumpy())) == {0.5}
