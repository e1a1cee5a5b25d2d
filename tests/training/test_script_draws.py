"""Draws that belong to samples: a GAN's noise must be the sample's own, or a change of the membership changes what the
generator is trained on.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, EPOCHS, SAMPLES, Rows, mlp, numbers, weights
from mxnet import autograd, gluon

import mxnet as mx  # isort: skip

LATENT = 2
COURSES = [
    ({0: 3}, [], 2),
    ({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1),
    ({0: 7}, [Death(6, 0, 1)], None),
]


def normal(generator: Any) -> Any:
    return generator.normal(size=LATENT)


def gan(job: Any, seen: dict[Any, Any], **options: Any) -> list[Any]:
    """example/gluon/dc_gan with its noise drawn in the loop. `seen`: (epoch, sample) to what was drawn for it."""
    real = Rows(numbers(SAMPLES, 4), np.arange(SAMPLES, dtype=np.int32))
    generator, judge = mlp(4, LATENT, seed=2), mlp(1, 4, seed=3)
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    g = job.trainer(generator.collect_params(), "adam", {"learning_rate": 0.02, "beta1": 0.5})
    d = job.trainer(judge.collect_params(), "adam", {"learning_rate": 0.02, "beta1": 0.5})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, **options):
        for data, index in epoch.batches(real):
            where = [(epoch.number, int(i)) for i in index.asnumpy()]
            noise = epoch.per_sample("noise", normal) if hasattr(epoch, "per_sample") else [seen[at] for at in where]
            for at, one in zip(where, noise, strict=True):
                assert np.array_equal(seen.setdefault(at, one), one), "each worker draws the same for a sample"
            z, ones, zeros = mx.nd.array(np.stack(noise)), mx.nd.ones(len(data)), mx.nd.zeros(len(data))
            with autograd.record():
                error = loss_of(judge(data), ones) + loss_of(judge(generator(z).detach()), zeros)
            error.backward()
            d.step(len(data))
            with autograd.record():
                error = loss_of(judge(generator(z)), ones)
            error.backward()
            g.step(len(data))
    return weights(generator, judge)


@pytest.mark.parametrize(("plan", "deaths", "segment_steps"), COURSES)
def test_t2_a_gans_noise_goes_with_its_samples_whoever_has_them(
    plan: dict[int, int], deaths: list[Death], segment_steps: int | None
) -> None:
    seen: dict[Any, Any] = {}
    results = Conductor(plan, deaths, segment_steps).run(lambda job: gan(job, seen))
    assert len(seen) == EPOCHS * SAMPLES
    assert len({one.tobytes() for one in seen.values()}) == len(seen), "each sample of each epoch has noise of its own"
    expected = gan(Plain(), seen)
    assert results
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_t2_a_samples_draws_follow_from_the_seed_and_the_name_too() -> None:
    draws = []
    for seed in (0, 0, 1):
        gan(ElasticJob.join(), seen := {}, seed=seed)
        draws.append({at: one.tobytes() for at, one in seen.items()})
    first, again, other = draws
    assert first == again
    assert not set(first.values()) & set(other.values())


def test_t2_the_parts_of_a_large_share_have_the_draws_of_the_whole() -> None:
    """With `local_batch_at_most` a batch comes in parts: each has its own samples' draws, as many as it has."""
    seen: dict[int, list[Any]] = {}
    for at_most in (None, 2):
        job, net = ElasticJob.join(), mlp()
        trainer = job.trainer(net.collect_params(), "sgd")
        drawn = seen.setdefault(at_most or 0, [])
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, local_batch_at_most=at_most):
            for (data,) in epoch.batches(Rows(numbers(SAMPLES, 4))):
                one, other = epoch.per_sample("one", normal), epoch.per_sample("other", normal)
                assert one.shape == other.shape == (len(data), LATENT)
                assert not np.isin(one, other).any(), "a name has draws of its own"
                drawn += one.tolist()
                with autograd.record():
                    loss = net(data).sum()
                loss.backward()
                trainer.step(BATCH)
            with pytest.raises(RuntimeError, match=r"per_sample\(\) was called outside of the loop"):
                epoch.per_sample("mask", normal)
    assert seen[0] == seen[2]


@pytest.mark.parametrize("kind", ["iterator", "stream"])
def test_data_that_cannot_be_asked_for_by_number_is_refused_with_what_to_take_instead(kind: str) -> None:
    data = mx.io.NDArrayIter(mx.nd.ones((8, 4)), batch_size=4) if kind == "iterator" else (x for x in numbers(8, 4))
    says = (
        "NDArrayIter divides its data only once.*ImageRecordDataset"
        if kind == "iterator"
        else "generator has no length"
    )
    with pytest.raises(TypeError, match=says):
        ElasticJob.join().loader(data, 4)
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd")
    epoch = next(iter(job.epochs(1, samples=8, global_batch=4)))
    with pytest.raises(TypeError, match=says):
        next(epoch.batches(data))
