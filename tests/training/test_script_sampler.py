"""A script's own batch sampler, and batches that are made before they are divided."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.protocol.messages import START
from dyntrain.training.sampling.batching import FixedGlobal
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.data.loader_processes import LoaderProcesses
from dyntrain.training.worker.data.sampled import SampledBatches, seeded_generators
from idioms import BATCH, EPOCHS, SAMPLES, Buckets, data, mlp, numbers, weights
from mxnet import autograd, gluon
from test_script_idioms import all_close
from test_script_loader import loaded


class Shuffles:
    """In place, with NumPy's global generator, as many samplers do."""

    def __init__(self) -> None:
        self._batches = [[0, 1, 2], [3, 4], [5], [6, 7, 8, 9]]

    def __iter__(self) -> Iterator[list[int]]:
        np.random.shuffle(self._batches)  # type: ignore[arg-type]
        return iter(self._batches)


def listed(batches: list[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_an_epochs_batches_are_those_of_as_many_passes_through_gluons_own_loader() -> None:
    """A sampler that shuffles in place remembers its passes; a joiner has to have gone through them too."""
    static, given = Shuffles(), []
    for epoch in range(6):
        with seeded_generators(7, epoch):
            loader = gluon.data.DataLoader(list(range(10)), batch_sampler=static)
            given.append([batch.asnumpy().astype(int).tolist() for batch in loader])
    assert len({str(batches) for batches in given}) > 1
    assert listed(SampledBatches(Shuffles(), 10, 7).batches(5)) == given[5], "who joins in epoch 5"
    there = SampledBatches(Shuffles(), 10, 7)
    assert [listed(there.batches(epoch)) for epoch in (*range(6), 2, 4, 5)] == [*given, given[2], given[4], given[5]]


def test_drawing_batches_leaves_the_scripts_own_draws_where_they_were() -> None:
    """Or augmentation would be other on who draws an epoch later or earlier."""
    random.seed(3), np.random.seed(3)
    expected = random.random(), np.random.random()
    random.seed(3), np.random.seed(3)
    SampledBatches(Shuffles(), 10, 7).batches(4)
    assert (random.random(), np.random.random()) == expected


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), data=st.data())
@settings(deadline=None)
def test_each_batch_is_divided_whatever_the_membership_is(sizes: list[int], data: st.DataObject) -> None:
    ends = np.cumsum(sizes)
    batches = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    drawn = SampledBatches(batches, int(ends[-1]), 0)
    shares, at = Shares(drawn.taken, 2, 0, FixedGlobal(1), drawn=drawn.batches), START
    for epoch in range(2):
        for number, batch in enumerate(batches):
            assert (at.epoch, shares.batch_number(at, 1)) == (epoch, number)
            workers = data.draw(st.integers(1, 5))
            taken = [shares.take(at, worker, workers) for worker in range(workers)]
            assert [i for part, spectates in taken if not spectates for i in part.tolist()] == batch
            assert all(len(part) == 1 and part[0] in batch for part, spectates in taken if spectates)
            at = shares.after(at, workers)
    assert (at.epoch, at.offset) == (2, 0)


class Unseeded:
    def __iter__(self) -> Iterator[list[int]]:
        yield np.random.default_rng().permutation(10).tolist()


class Shrinks:
    def __init__(self) -> None:
        self._left = 11

    def __iter__(self) -> Iterator[list[int]]:
        self._left -= 1
        yield list(range(self._left))


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        ((batch for batch in [[1, 2]]), "an iterable that can be copied"),
        ([[0, 1], [], [2]], "and no empty batch"),
        ([], "at least one batch"),
        ([[0, 1], [2, 1]], "sample 1 twice"),
        ([[0, 10]], "index 10, the dataset has 10"),
        ([[-1, 3]], "index -1"),
        ([3, 1, 2], r"gives 3 for a batch.*BatchSampler\(sampler, batch_size\)"),
        ([[0.5, 1]], r"gives \[0.5, 1\] for a batch"),
        (Unseeded(), "draws different batches each time"),
    ],
    ids=["generator", "empty", "none", "twice", "beyond", "negative", "of samples", "of fractions", "unseeded"],
)
def test_a_sampler_that_cannot_be_divided_is_refused_before_the_first_step(sampler: Any, says: str) -> None:
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd")
    job.loader(list(range(10)), batch_sampler=sampler)
    with pytest.raises(ValueError, match=says):
        job.epochs(2)


def test_epochs_of_unequal_numbers_of_samples_are_refused() -> None:
    drawn = SampledBatches(Shrinks(), 10, 0)
    with pytest.raises(ValueError, match=r"9 samples in epoch 1, but 10 .*rollover"):
        drawn.batches(1)


def loaders(*options: dict[str, Any]) -> Any:
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd")
    for each in options:
        job.loader(data(), **each)
    return job


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: loaders({"batch_sampler": [[0]], "batch_size": 4}), "omit batch_size= and last_batch="),
        (lambda: loaders({"batch_sampler": [[0]], "last_batch": "discard"}), "omit batch_size= and last_batch="),
        (lambda: loaders({"batch_sampler": [[0]]}, {"batch_sampler": [[1]]}).epochs(1), "two batch samplers"),
        (lambda: loaders({"batch_sampler": [[0]]}).epochs(1, batching=PerWorker(2)), "beside a batch_sampler"),
    ],
    ids=["batch size", "last batch", "two", "per worker"],
)
def test_what_does_not_go_with_a_sampler_says_so(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_gluons_samplers_are_taken_and_one_that_discards_leaves_samples_out() -> None:
    ordered = gluon.data.BatchSampler(gluon.data.SequentialSampler(SAMPLES), BATCH, "discard")
    job = ElasticJob.join()
    trainer = job.trainer((net := mlp()).collect_params(), "sgd")
    loader = job.loader(list(zip(numbers(SAMPLES, 4), range(SAMPLES), strict=True)), batch_sampler=ordered)
    seen, places = [], []
    for epoch in job.epochs(2):
        for x, index in loader:
            seen += index.asnumpy().astype(int).tolist()
            places.append((int(epoch), loader.batch_number, loader.last))
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            trainer.step(BATCH)
    whole = SAMPLES // BATCH
    assert seen == list(range(whole * BATCH)) * 2
    assert len(loader) == whole
    assert places == [(epoch, i, i == whole - 1) for epoch in range(2) for i in range(whole)]


def test_workers_whose_samplers_differ_are_no_members_of_one_job() -> None:
    one, other, same = (SampledBatches(Buckets(np.arange(23) % n + 1), 23, 0) for n in (5, 4, 5))
    assert str(one) == str(same) != str(other)
    assert "Buckets" in str(one)


# ---- batches that are made before they are divided


class Drawn:
    """Draws for a sample from all three generators, so that what is drawn for the batch has to be seeded anew."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.random() + mx.nd.random.uniform(shape=1).asscalar()
        return np.float32(index), numbers(SAMPLES, 4)[index] + np.float32(noise), np.int32(index % 3)


def mixed(samples: list[Any]) -> Any:
    """GluonCV's mixup: how much of each is drawn once for all."""
    index, x, y = (np.stack(column) for column in zip(*samples, strict=True))
    much = np.random.beta(0.4, 0.4) * random.random() * mx.nd.random.uniform(shape=1).asscalar()
    one_hot = np.eye(3, dtype=np.float32)[y]
    return (mx.nd.array(index), mx.nd.array(much * x + (1 - much) * x[::-1])), [
        mx.nd.array(much * one_hot + (1 - much) * one_hot[::-1]), float(much)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def processes() -> Iterator[LoaderProcesses]:
    """Forked before any thread of a test."""
    loading = LoaderProcesses(Drawn(), mixed, 2, whole_batch=True)
    yield loading
    loading.close()


def train(job: Any, loader: Loader, seen: dict[tuple[int, int], Any]) -> list[Any]:
    net, soft = mlp(), gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, seed=4):
        for (index, x), (y, much) in epoch.batches(loader):
            for i, row in zip(index.asnumpy().tolist(), x.asnumpy(), strict=True):
                drawn = (row.tobytes(), much)
                assert seen.setdefault((int(epoch), int(i)), drawn) == drawn
            with autograd.record():
                loss = soft(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def test_t2_what_is_drawn_for_a_whole_batch_is_the_same_on_every_worker(processes: LoaderProcesses) -> None:
    alone: dict[tuple[int, int], Any] = {}
    here = Loader(Drawn(), mixed, whole_batch=True)  # loaded where it is used
    expected = train(ElasticJob.join(), here, alone)
    assert len(alone) == EPOCHS * SAMPLES
    assert len({much for _, much in alone.values()}) == EPOCHS * 4, "drawn once for each batch"
    conductor, seen = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1), dict[tuple[int, int], Any]()
    results = conductor.run(
        lambda job: train(job, Loader(Drawn(), mixed, processes, prefetch=3, whole_batch=True), seen)
    )
    assert seen == alone
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("batchify", "says"),
    [
        (lambda samples: mx.nd.zeros((1, len(samples))), r"of \(1, 3\) out of 3 samples"),
        (lambda samples: {"x": mx.nd.zeros(len(samples))}, "made dict out of 3 samples"),
    ],
    ids=["other axis", "dictionary"],
)
def test_a_whole_batch_that_cannot_be_divided_is_refused(batchify: Any, says: str) -> None:
    load = Load(0, 0, np.arange(3), np.arange(1, 2))
    with pytest.raises(ValueError, match=says):
        Loader(Drawn(), batchify, whole_batch=True).take(iter([load]))


def rare_classes_often(job: Any) -> list[Any]:
    """Drawn with replacement: as the sentence says that refuses a sampler's."""
    rows, chances = data(), np.arange(1, SAMPLES + 1) / sum(range(1, SAMPLES + 1))
    drawn = np.random.RandomState(0).choice(SAMPLES, SAMPLES, p=chances)
    return loaded(job, gluon.data.SimpleDataset(drawn).transform(lambda i: rows[int(i)], lazy=True))


def test_t2_samples_that_are_drawn_with_replacement_may_be_a_dataset_of_draws() -> None:
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(rare_classes_often)
    all_close(results, rare_classes_often(Plain()))
    again = [3, 1, 3]
    with pytest.raises(ValueError, match=r"sample 3 twice.*draw with replacement.*SimpleDataset\(drawn\)"):
        SampledBatches(gluon.data.BatchSampler(again, 2), 4, 0).batches(0)
