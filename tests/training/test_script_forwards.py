"""Parameters that the forward pass writes stay equal on all workers, and are what one process would have."""

from __future__ import annotations

import logging
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.undone.forward_writes import ForwardWrites
from dyntrain.training.worker.state.training_state import TrainingState
from idioms import BATCH, CROSS, SAMPLES, averaged_weights, data, initialise, mlp, spectral_norm, train, weights
from idioms import SpectralNorm as Layer
from mxnet import autograd
from mxnet.gluon import nn
from test_script_idioms import all_close, close

COURSE = ({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)


def test_t2_a_loss_in_the_first_batch_of_all_leaves_no_second_pass_behind() -> None:
    """Nobody knows yet what the forward pass writes."""
    all_close(Conductor({0: 3, 1: 2}, [Death(0, 1)], None).run(spectral_norm), spectral_norm(Plain()))


def test_after_a_first_batch_that_is_void_the_next_one_is_looked_at() -> None:
    net = mlp()
    state = TrainingState(net, ElasticJob.join().trainer(net.collect_params(), "sgd"))
    looks = ForwardWrites()
    for undone in (True, False):
        looks.begin_batch(state)
        net[1].bias.data()[:] += 1
        assert sorted(looks.flags(state)) == [0, 0, 0, 1]
        looks.end_batch(undone)
    looks.begin_batch(state)
    net[1].bias.data()[:] += 1
    assert looks.flags(state) == [0, 0, 0, 0], "each update writes to all of them"


def goes_back(job: Any) -> list[Any]:
    """To the weights that were best, where an epoch ends: with them the vectors that went with them."""
    net = nn.Sequential()
    net.add(Layer(), nn.Activation("tanh"), nn.Dense(3))
    net = initialise(net, mx.nd.zeros((1, 4)))
    params = net.collect_params()
    best = {name: p.data().copy() for name, p in params.items()}
    trainer = job.trainer(params, "adam", {"learning_rate": 0.05})

    def ends(epoch: Any) -> None:
        if epoch == 0:
            net(mx.nd.ones((2, 4)))
            for name, p in params.items():
                p.set_data(best[name])

    train(job, net, trainer, ends=ends)
    return weights(net)


@pytest.mark.parametrize("course", [({0: 1}, [], None), COURSE], ids=["alone", "changing"])
def test_t2_what_the_script_sets_where_an_epoch_ends_stays(course: Any) -> None:
    all_close(Conductor(*course).run(goes_back), goes_back(Plain()))


def written(job: Any, epochs: int = 3, at_most: int | None = None, passes: bool = False) -> Any:
    """`passes`: validation makes more of them on one worker than on another."""
    net = nn.Sequential()
    net.add(Layer(), nn.Dense(3))
    net = initialise(net, mx.nd.zeros((1, 4)))
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def validates(epoch: Any) -> None:
        for _ in range(epoch.rank if passes else 0):
            net(mx.nd.ones((2, 4)))

    train(job, net, trainer, ends=validates, epochs=epochs, local_batch_at_most=at_most)
    return weights(net)


def test_t2_more_passes_on_one_worker_than_on_another_are_undone_at_the_epochs_end() -> None:
    expected = written(ElasticJob.join())
    results = Conductor(*COURSE).run(lambda job: written(job, passes=True))
    assert len(results) > 1
    all_close(results, expected)


def test_a_batch_in_parts_is_one_pass() -> None:
    close(written(ElasticJob.join(), 1, 2), written(ElasticJob.join(), 1))


@pytest.mark.parametrize(("script", "writes"), [(spectral_norm, 1), (averaged_weights, 0)])
def test_what_is_written_is_named_once_and_nothing_else(
    script: Any, writes: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="dyntrain.training.worker.loop.undone.forward_writes"):
        script(ElasticJob.join())
    messages = [text for text in caplog.messages if text.startswith("the forward pass writes to ")]
    assert len(messages) == writes
    assert all(text.split(":")[0].endswith("_u") and "," not in text.split(":")[0] for text in messages)


def test_a_worker_that_joins_knows_what_is_written() -> None:
    """Its own passes may change nothing, where the vector has come to rest."""

    def rests(job: Any) -> Any:
        net = nn.Sequential()
        net.add(Layer(), nn.Dense(3))
        net = initialise(net, mx.nd.zeros((1, 4)))
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
        train(job, net, trainer, epochs=12)
        return [net[0].u.data().asnumpy(), np.array(job._loop.state.own["written"])]

    results = Conductor({0: 1, 40: 3}, [], 4).run(rests)
    assert len(results) == 3
    for _, written in results:
        assert len(written) == 1


def clips_before(job: Any) -> Any:
    """As a Wasserstein GAN clips its weights where a batch begins, beside a spectral norm. Weights are written where an
    epoch ends, too, as by `load_parameters`.
    """
    net = nn.Sequential()
    net.add(Layer(), nn.Dense(3))
    net = initialise(net, mx.nd.zeros((1, 4)))
    own = [p for p in net.collect_params().values() if not p.name.endswith("_u")]
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(3, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            for p in own:
                p.set_data(p.data().clip(-0.3, 0.3))
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        for p in own:
            p.set_data(p.data() * 0.7)
    return weights(net)


def test_t2_what_a_script_writes_itself_is_not_taken_for_what_its_nets_write(caplog: pytest.LogCaptureFixture) -> None:
    expected = clips_before(Plain())
    with caplog.at_level(logging.WARNING, logger="dyntrain.training.worker.loop.undone.forward_writes"):
        close(clips_before(ElasticJob.join()), expected)
    assert ["_u:" in text and "," not in text.split(":")[0] for text in caplog.messages if "forward pass" in text] == [
        True
    ]
    all_close(Conductor(*COURSE).run(clips_before), expected)
    all_close(Conductor({0: 3, 1: 2}, [Death(0, 1)], None).run(clips_before), expected)
