"""`local_batch_at_most`: a worker that is left with a large share gets it in parts, and the weights stay the same."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.audit import audit
from dyntrain.training.job import ElasticJob, Epoch
from dyntrain.training.ledger import Intent
from dyntrain.training.worker.data.loader import Loader
from idioms import (
    BATCH,
    CROSS,
    EPOCHS,
    SAMPLES,
    accumulation,
    data,
    dcgan,
    embedding,
    fine_tuning,
    imagenet,
    mlp,
    mnist,
    weights,
    word_language_model,
)
from mxnet import autograd


class Cut:
    """The job as a script sees it that gives a limit, which the idioms' own lines do not."""

    def __init__(self, job: Any, at_most: int) -> None:
        self._job, self._at_most = job, at_most
        self.trainer = job.trainer

    def epochs(self, *arguments: Any, **options: Any) -> Any:
        return self._job.epochs(*arguments, local_batch_at_most=self._at_most, **options)


def mean(job: Any) -> Any:
    """The batch in hand, over which the mean is, is a part."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.03}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y).mean()
            loss.backward()
            trainer.step(1)
    return weights(net)


@pytest.mark.parametrize(
    "script", [mnist, imagenet, word_language_model, embedding, fine_tuning, mean], ids=lambda script: script.__name__
)
def test_in_parts_the_weights_are_those_of_the_whole_batch_in_one_process(script: Any) -> None:
    expected = script(Plain())
    conductor = Conductor({0: 3, 3: 2, 6: 1, 9: 2}, [Death(4, 1), Death(10, 0, 0, "applied")], 1)
    for result in conductor.run(lambda job: script(Cut(job, 1 if script is embedding else 2))):
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
    report = audit(conductor.settled, map(Intent.model_validate, conductor.intents), SAMPLES)
    assert report.exact, report


def test_no_part_is_larger_than_told_and_a_loader_loads_the_parts() -> None:
    seen: list[tuple[int, int]] = []

    def script(job: Any) -> Any:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        rows = data()
        loader = Loader([(i, *rows[i]) for i in range(SAMPLES)])
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=11, local_batch_at_most=3):
            for at, (index, x, y) in epoch.enumerate(loader):
                seen.extend((at, int(i)) for i in index.asnumpy())
                assert len(x) <= 3
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(len(x))
        return weights(net)

    alone = script(ElasticJob.join())
    assert sorted(index for _, index in seen) == list(range(SAMPLES))
    assert [sum(at == number for at, _ in seen) for number in range(3)] == [11, 11, 1], (
        "parts keep their batch's number"
    )
    for result in Conductor({0: 2}).run(script):
        for mine, theirs in zip(result, alone, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("script", "instead"), [(dcgan, "the fewest workers"), (accumulation, "global_batch=k")])
def test_what_cannot_be_cut_is_refused_before_the_first_step(script: Any, instead: str) -> None:
    with pytest.raises(ValueError, match=instead):
        script(Cut(ElasticJob.join(), 2))


def begun() -> tuple[Epoch, Any, Any]:
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    epoch = next(job.epochs(1, samples=SAMPLES, global_batch=BATCH, local_batch_at_most=2))
    return epoch, net, trainer


def test_a_part_without_a_step_and_a_sum_within_a_batch_are_refused() -> None:
    epoch, _, _ = begun()
    batches = epoch.batches(data())
    next(batches)
    with pytest.raises(RuntimeError, match="not called for the last batch"):
        next(batches)
    epoch, _, _ = begun()
    next(epoch.batches(data()))
    with pytest.raises(RuntimeError, match="Reduce after the loop over the batches"):
        epoch.reduce("loss", 1.0)
    with pytest.raises(ValueError, match="local_batch_at_most"):
        ElasticJob.join().epochs(1, samples=SAMPLES, global_batch=BATCH, local_batch_at_most=0)
