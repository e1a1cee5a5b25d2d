"""The state that joiners receive and commits hold: if it is wrong, workers drift apart or a job resumes from rubbish."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from training.block import checksum
from training.protocol import Position
from training.state import StateError, TrainingState, _write, digest
from training.transfer import StateServer, TransferError, fetch

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
    assert digest(other.pack(AT)) == digest(state.pack(AT))
    train(net, trainer, 3)
    train(other_net, other_trainer, 3)
    assert digest(other.pack(AT)) == digest(state.pack(AT)), "momentum, update counts and schedule came along"


def test_the_digest_sees_parameters_optimizer_state_and_position() -> None:
    net, trainer, state = model(1)
    train(net, trainer, 2)
    before = digest(state.pack(AT))
    assert digest(state.pack(Position(epoch=2, offset=11, step=31))) != before
    trainer._updaters[0].states[0][:] += 1
    assert digest(state.pack(AT)) != before, "momentum counts"


def test_running_statistics_travel_but_may_differ_between_workers() -> None:
    net, trainer, state = model(1)
    train(net, trainer, 2)
    before = digest(state.pack(AT))
    statistics = next(param for name, param in net.collect_params().items() if name.endswith("running_mean"))
    statistics.set_data(statistics.data() + 5)
    assert digest(state.pack(AT)) == before
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


def test_the_state_arrives_whole_and_only_with_the_generations_token() -> None:
    server = StateServer("127.0.0.1", wait_seconds=5)
    block = memoryview(b"state" * 300_000)
    server.offer(7, "secret", block)
    try:
        assert fetch("127.0.0.1", server.port, 7, "secret", 5) == block
        with pytest.raises(TransferError):
            fetch("127.0.0.1", server.port, 7, "guess", 5)
        with pytest.raises(TransferError):
            fetch("127.0.0.1", server.port, 6, "secret", 5)
    finally:
        server.close()


def test_a_block_that_was_damaged_on_the_way_is_not_taken_over() -> None:
    block = b"state" * 1000
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(len(block).to_bytes(8, "big") + block.replace(b"e", b"f", 1) + checksum(block))

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TransferError, match="damaged"):
            fetch("127.0.0.1", server.getsockname()[1], 1, "t", 5)
        thread.join(5)
    assert not thread.is_alive()


def test_a_source_that_is_gone_is_an_error_within_the_bound() -> None:
    server = StateServer("127.0.0.1")
    server.close()
    with pytest.raises(TransferError, match="generation 1"):
        fetch("127.0.0.1", server.port, 1, "t", 2)


def test_a_joiner_that_has_tried_its_network_out_can_take_the_state() -> None:
    """A forward pass leaves the weights of a convolution in a layout of MKL-DNN's, which a plain copy refuses."""
    net = gluon.nn.Conv2D(64, 3, in_channels=64)
    net.initialize()
    net.hybridize(static_alloc=True)
    for _ in range(2):
        net(mx.nd.ones((2, 64, 16, 16))).wait_to_read()
    weight = net.weight.data()
    sent = np.arange(weight.size, dtype=np.float32)
    _write(weight, sent.view(np.uint8))
    assert np.array_equal(weight.asnumpy().reshape(-1), sent)
