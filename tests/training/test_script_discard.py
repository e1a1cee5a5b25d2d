"""`last_batch="discard"`: a script that is written for whole batches gets no other, whoever trains, and an epoch takes
as many samples as Gluon's own loader would.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death
from dyntrain.training.audit import audit
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.ledger import Intent
from dyntrain.training.protocol.messages import START
from dyntrain.training.sampling.sharding import epoch_order
from dyntrain.training.sampling.shares import Shares
from hypothesis import given, settings
from hypothesis import strategies as st
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

WHOLE = SAMPLES // BATCH * BATCH
CHANGES: dict[str, Any] = {
    "plan": {0: 1, 2: 3, 6: 2},
    "deaths": [Death(3, 1), Death(7, 0, 0, "applied")],
    "segment_steps": 1,
}


@settings(deadline=None)
@given(
    workers=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    batch=st.integers(1, 7),
    samples=st.integers(7, 60),
)
def test_every_share_is_a_whole_batch_and_no_sample_comes_twice(workers: list[int], batch: int, samples: int) -> None:
    whole = samples // batch * batch
    shares = Shares(whole, 3, 7, PerWorker(batch), drawn_from=samples)
    at, taken, turn = START, list[int](), 0
    while at.epoch == 0:
        present = workers[turn % len(workers)]  # the membership may change at any step
        for number in range(present):
            indices, spectates = shares.take(at, number, present)
            assert len(indices) == batch
            taken += [] if spectates else indices.tolist()
        at, turn = shares.after(at, present), turn + 1
    assert len(taken) == len(set(taken)) == whole
    assert set(taken) <= set(range(samples))


def test_what_is_left_out_changes_with_the_epoch() -> None:
    shares = Shares(WHOLE, 40, 0, PerWorker(BATCH), drawn_from=SAMPLES)
    kept = set.intersection(*(set(shares._kept_order(epoch)[0].tolist()) for epoch in range(40)))
    assert len(kept) < WHOLE, "no sample is left out for ever"


def fixed_labels(job: Any, **how: Any) -> list[Any]:
    """As a GAN's script has them: made once, of the batch size."""
    net, wanted = mlp(), mx.nd.array(np.arange(BATCH) % 3)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loader = job.loader(data(), BATCH, shuffle=True, last_batch="discard")
    for _ in job.epochs(EPOCHS, **how):
        assert len(loader) == WHOLE // BATCH
        for x, y in loader:
            with autograd.record():
                loss = CROSS(net(x), y) + CROSS(net(x), wanted)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def test_labels_of_a_batch_that_is_written_down_fit_on_every_worker() -> None:
    conductor = Conductor(**CHANGES)
    conductor.run(lambda job: fixed_labels(job, batching=PerWorker(BATCH, ramp=0)))
    report = audit(conductor.settled, map(Intent.model_validate, conductor.intents), WHOLE, SAMPLES)
    assert report.exact, report
    assert not audit(conductor.settled, map(Intent.model_validate, conductor.intents), SAMPLES).exact


def plain(job: Any) -> list[Any]:
    """Gluon's own loader, in the order of the job's epochs; or the job's."""
    net = mlp()
    theirs = job is None
    trainer = (gluon.Trainer if theirs else job.trainer)(net.collect_params(), "sgd", {"learning_rate": 0.1})
    mine = None if theirs else job.loader(data(), BATCH, last_batch="discard")
    for epoch in range(EPOCHS) if theirs else job.epochs(EPOCHS):
        order = epoch_order(SAMPLES, 0, epoch).tolist()
        for x, y in mine or gluon.data.DataLoader(data(), BATCH, sampler=order, last_batch="discard"):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def test_the_weights_are_those_of_gluons_own_loader() -> None:
    expected = plain(None)
    for result in (*Conductor(**CHANGES).run(plain), plain(ElasticJob.join())):
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_loaders_that_end_an_epoch_differently_are_refused() -> None:
    job, net = ElasticJob.join(), mlp()
    job.trainer(net.collect_params(), "sgd")
    job.loader(data(), BATCH, last_batch="discard")
    job.loader(data(), BATCH)
    with pytest.raises(ValueError, match="alike for all loaders"):
        job.epochs(1)
