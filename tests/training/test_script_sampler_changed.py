"""A batch sampler that the script changes within its loop: batches are drawn ahead, and by workers that join later, so
the change would be lost, in part and without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.refused import Refused
from idioms import BATCH, CROSS, SAMPLES, Buckets, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close


class ByEpoch:
    """As Horovod's and PyTorch's: the order follows from the epoch that it was told last."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.RandomState(self.epoch).permutation(SAMPLES)
        return iter([order[at : at + BATCH].tolist() for at in range(0, SAMPLES, BATCH)])

    def __len__(self) -> int:
        return -(-SAMPLES // BATCH)


class Counts(ByEpoch):
    """The same, told by nobody."""

    def __iter__(self) -> Iterator[list[int]]:
        batches = super().__iter__()
        self.epoch += 1
        return batches


class Easiest(ByEpoch):
    """A curriculum: more samples, the longer it lasts."""

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(min(SAMPLES, BATCH * (1 + self.epoch))))
        return iter([order[at : at + BATCH] for at in range(0, len(order), BATCH)])


def train(job: Any, sampler: Any, change: Callable[[int], None] = lambda epoch: None, epochs: int = 3) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.3, "momentum": 0.5})
    loader = job.loader(data(), batch_sampler=sampler)
    for epoch in job.epochs(epochs):
        change(int(epoch))
        for x, y in loader:
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(len(y))
    return weights(net)


def listed() -> list[list[int]]:
    return list(ByEpoch())


def make_sampler(kind: str) -> tuple[Any, Callable[[int], None]]:
    """A sampler, and what its script does to it where an epoch begins."""
    if kind in ("told the epoch", "a curriculum"):
        sampler = ByEpoch() if kind == "told the epoch" else Easiest()
        return sampler, sampler.set_epoch
    batches = listed()
    return batches, lambda epoch: np.random.RandomState(epoch).shuffle(batches)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["told the epoch", "a curriculum", "shuffled by hand"])
def test_a_sampler_that_the_script_changes_where_an_epoch_begins_is_refused(kind: str) -> None:
    """Each epoch would be in the order of the first one, or of the next."""
    sampler, change = make_sampler(kind)
    begun: list[int] = []
    with pytest.raises(Refused, match=r"other batches than when job.epochs\(\) began.*in its __iter__"):
        train(ElasticJob.join(), sampler, lambda epoch: (begun.append(epoch), change(epoch))[1])
    assert begun[-1] == (0 if kind == "shuffled by hand" else 1)


def test_one_who_joins_later_is_refused_before_its_first_step() -> None:
    """It makes its sampler anew, and is told no other epoch than the one that it joins in."""
    sampler = ByEpoch()
    with pytest.raises(Refused, match="other batches"):
        train(ElasticJob.join(), sampler, lambda epoch: sampler.set_epoch(epoch + 1), epochs=1)


@pytest.mark.parametrize("sampler", [Counts, listed, lambda: Buckets(np.arange(SAMPLES) % 5 + 1)])
def test_t2_a_sampler_that_changes_by_itself_alone_is_right(sampler: Callable[[], Any]) -> None:
    """Draws of its own, or a count of its passes."""
    expected = train(Plain(), sampler(), epochs=6)
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: train(job, sampler(), epochs=6))
    all_close(results, expected)
