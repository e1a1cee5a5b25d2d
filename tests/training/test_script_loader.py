"""`job.loader`: what it loads does not depend on who loads it, and its processes neither hang a job nor outlive it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from waiting import wait_for

import mxnet as mx  # isort: skip
from conducted import Conductor, Death
from dyntrain.controller.local.pace import patient
from dyntrain.training.audit import audit
from dyntrain.training.job import ElasticJob
from dyntrain.training.ledger import Intent
from dyntrain.training.worker.data.loader import Load, Loader, LoaderBroken, SampleError
from dyntrain.training.worker.data.loader_processes import LoaderProcesses, remove_stale_folders
from dyntrain.training.worker.data.shards import Shards
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, labels, mlp, numbers, weights
from mxnet import autograd
from mxnet.gluon.data import RecordFileDataset
from mxnet.gluon.data.vision import transforms

FEATURES, LABELS = numbers(SAMPLES, 4), labels(3)
FLIP = transforms.RandomFlipLeftRight()


class Augmented:
    """Draws from all three generators that augmentation draws from. A sample says its index and what was drawn."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        flipped = FLIP(mx.nd.arange(6).reshape((1, 2, 3))).asnumpy()[0, 0, 0]
        drawn = np.array([random.random(), np.random.random(), flipped], dtype=np.float32)
        return index, np.concatenate([FEATURES[index] + drawn[0], drawn[1:]]), LABELS[index]


@pytest.fixture(scope="module")
def processes() -> Iterator[LoaderProcesses]:
    """Forked before any thread of a test."""
    loading = LoaderProcesses(Augmented(), lambda samples: mx.gluon.data.dataloader.default_mp_batchify_fn(samples), 2)
    yield loading
    loading.close()


def train(job: Any, loader: Loader, seen: dict[tuple[int, int], bytes]) -> list[Any]:
    net = mlp(inputs=6)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, seed=4):
        for index, x, y in epoch.batches(loader):
            for i, row in zip(index.asnumpy().tolist(), x.asnumpy(), strict=True):
                assert seen.setdefault((epoch.number, int(i)), row.tobytes()) == row.tobytes()
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def test_t2_augmented_samples_are_bit_for_bit_those_of_one_worker_whoever_loads_them(
    processes: LoaderProcesses,
) -> None:
    alone: dict[tuple[int, int], bytes] = {}
    expected = train(ElasticJob.join(), Loader(Augmented()), alone)  # loaded where it is used
    assert len(alone) == EPOCHS * SAMPLES
    assert len(set(alone.values())) == len(alone), "the same sample looks different in each epoch"
    conductor, seen = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1), dict[tuple[int, int], bytes]()
    results = conductor.run(lambda job: train(job, Loader(Augmented(), processes=processes, prefetch=3), seen))
    assert seen == alone
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
    report = audit(conductor.settled, map(Intent.model_validate, conductor.intents), SAMPLES)
    assert report.exact, report
    assert len(report.epochs) == EPOCHS
    assert report.void_intents, "the crash voided a step"


def record_files(folder: Path) -> list[str]:
    """Of one set in three parts; a record holds its index."""
    lengths, at, files = (9, 6, 8), 0, []
    for part, length in enumerate(lengths):
        file = str(folder / f"part{part}.rec")
        writer = mx.recordio.MXIndexedRecordIO(file.replace(".rec", ".idx"), file, "w")
        for key in range(length):
            writer.write_idx(key, str(at + key).encode())
        writer.close()
        files.append(file)
        at += length
    return files


def indexed(record: bytes) -> Any:
    index = int(record)
    return index, np.concatenate([FEATURES[index], FEATURES[index, :2]]), LABELS[index]


def test_t2_shards_of_recordio_are_read_in_sequence_whoever_reads_them(tmp_path: Path) -> None:
    files, read = record_files(tmp_path), list[list[int]]()

    def shards() -> Shards:
        dataset = Shards([RecordFileDataset(file) for file in files], at_once=3).transform(indexed)
        assert isinstance(dataset, Shards)
        return dataset

    def script(job: Any, loader: Any) -> list[Any]:
        net = mlp(inputs=6)
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for index, x, y in epoch.batches(loader):
                read.append(index.asnumpy().astype(int).tolist())
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(BATCH)
        return weights(net)

    job = ElasticJob.join()
    expected = script(job, job.loader(shards(), num_workers=1))
    assert all(np.diff(batch)[::2].tolist() == [1, 1, 1] for batch in read[1:3]), f"no runs out of three files: {read}"

    def worker(job: Any) -> list[Any]:
        return script(job, job.loader(shards()))

    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    for result in conductor.run(worker):
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
    report = audit(conductor.settled, map(Intent.model_validate, conductor.intents), SAMPLES)
    assert report.exact, report
    assert report.void_intents, "the crash voided a step"


def test_loaders_whose_shards_want_different_orders_are_refused() -> None:
    job, net = ElasticJob.join(), mlp()
    job.trainer(net.collect_params(), "sgd")
    for lengths in ((3, 3), (2, 4)):
        job.loader(Shards([[0.0] * length for length in lengths]))
    with pytest.raises(ValueError, match=r"2 shards .*; 2 shards .*same lengths"):
        next(job.epochs(1, samples=6, global_batch=2))
    with pytest.raises(ValueError, match="and no empty shard"):
        Shards([[1.0], []])


class Noisy(Augmented):
    """Draws from the other one of MXNet's two generators alone."""

    def __getitem__(self, index: int) -> Any:
        return index, mx.nd.random.normal(shape=3).asnumpy()


def test_what_a_transform_draws_with_mxnets_random_belongs_to_the_sample_too() -> None:
    """Also in a process' first batch, before it is known that the transform draws from it."""
    here, there = Loader(Noisy()), LoaderProcesses(Noisy(), None, 1)
    loader = Loader(Noisy(), processes=there)
    try:
        for indices in ([3, 1, 4], [4, 3], [1]):
            one, other = (each.take(iter([Load(2, 5, np.array(indices))])) for each in (here, loader))
            assert np.array_equal(one[1].asnumpy(), other[1].asnumpy())
            assert len(np.unique(one[1].asnumpy())) == 3 * len(indices)
    finally:
        loader.close()


def test_batches_are_loaded_ahead_and_dropped_when_the_share_changes(processes: LoaderProcesses) -> None:
    loader = Loader(Augmented(), processes=processes, prefetch=2)

    def take(*shares: tuple[int, ...]) -> list[int]:
        loads = iter([Load(0, 0, np.array(share)) for share in shares])
        return [int(i) for i in loader.take(loads)[0].asnumpy()]

    def queued() -> list[list[int]]:
        return [load.indices.tolist() for load, _ in loader._prefetched]

    assert take((0, 1), (2, 3), (4, 5), (6, 7)) == [0, 1]
    assert queued() == [[2, 3], [4, 5]]
    assert take((2, 3), (4, 5), (6, 7)) == [2, 3]
    assert queued() == [[4, 5], [6, 7]]
    assert take((4,), (6,), (8,)) == [4], "this worker's half, now that there are two"
    assert queued() == [[6], [8]]
    assert take((6,)) == [6]


def test_what_a_generation_will_want_is_loaded_while_it_forms_and_not_loaded_twice(processes: LoaderProcesses) -> None:
    loader = Loader(Augmented(), processes=processes, prefetch=1)

    def loads(*shares: tuple[int, ...]) -> Iterator[Load]:
        return iter([Load(0, 0, np.array(share)) for share in shares])

    loader.take(loads((0, 1), (2, 3)))
    loader.start_prefetch(loads((2,), (4,)))
    begun = [packed for _, packed in loader._prefetched]
    assert begun[0].result(patient(60)) is not None
    assert loader.take(loads((2,), (4,)))[0].asnumpy().tolist() == [2]
    assert [packed for _, packed in loader._prefetched] == begun[1:]
    assert loader.take(loads((4,)))[0].asnumpy().tolist() == [4]


def loaded(job: Any, dataset: Any) -> list[Any]:
    net = mlp()
    trainer, loader = job.trainer(net.collect_params(), "sgd"), job.loader(dataset, BATCH, shuffle=True)
    for _ in job.epochs(EPOCHS):
        for x, y in loader:
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.parametrize("changes", [({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1), ({0: 3, 5: 2}, [], None)])
def test_a_generation_begins_with_the_batches_that_were_loaded_while_it_formed(
    changes: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each change of the membership loads twice, and nothing but the job's speed would say so."""
    took, ahead, agree = Loader.take, dict[Loader, Load](), list[bool]()

    def start_prefetch(self: Loader, loads: Iterator[Load]) -> None:
        ahead[self] = next(loads)

    def take(self: Loader, loads: Iterator[Load]) -> Any:
        first = next(loads)
        if self in ahead:
            agree.append(ahead.pop(self).equals(first))
        return took(self, chain([first], loads))

    monkeypatch.setattr(Loader, "start_prefetch", start_prefetch)
    monkeypatch.setattr(Loader, "take", take)
    conductor = Conductor(*changes)
    conductor.run(lambda job: loaded(job, data()))
    assert len(agree) >= conductor.reformed
    assert all(agree), agree


def test_a_failing_sample_is_named_and_a_lost_process_ends_the_wait() -> None:
    class Broken(Augmented):
        def __getitem__(self, index: int) -> Any:
            if index == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return {}["label"] if index == 7 else index

    with pytest.raises(SampleError, match=r"sample 7 of the dataset: KeyError: 'label'"):
        Loader(Broken()).take(iter([Load(0, 0, np.array([3, 7]))]))
    processes = LoaderProcesses(Broken(), None, 1)
    loader = Loader(Broken(), processes=processes)
    with pytest.raises(SampleError, match=r"sample 7 of the dataset: KeyError: 'label'"):
        loader.take(iter([Load(0, 0, np.array([3, 7]))]))
    assert loader.take(iter([Load(0, 0, np.array([3, 4]))])).asnumpy().tolist() == [3, 4], "it loads on"
    with pytest.raises(LoaderBroken, match="memory"):
        loader.take(iter([Load(0, 0, np.array([9]))]))
    loader.close()


def test_a_dataset_that_hangs_is_given_up_after_the_timeout_and_does_not_keep_the_process_from_ending() -> None:
    class Hanging(Augmented):
        def __getitem__(self, index: int) -> Any:
            threading.Event().wait()

    loader = ElasticJob.join().loader(Hanging(), num_workers=1, timeout=0.1)
    with pytest.raises(LoaderBroken, match=r"\[5\] of epoch 0 were not loaded in 0.1 s"):
        loader.take(iter([Load(0, 0, np.array([5]))]))
    processes = list(loader._processes._executor._processes.values())  # type: ignore[union-attr]
    loader.close()
    for process in processes:  # the executor waits for it as well, and for a moment one of two does not know its end
        wait_for(lambda: not process.is_alive(), 10.0)  # noqa: B023


PARENT = """
import dyntrain.training.numpy_aliases
import numpy as np
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.loader import Load
loader = ElasticJob.join().loader(list(range(6)), num_workers=2)
loads = [Load(0, 0, np.array([at, at + 1])) for at in (0, 2, 4)]
loader.take(iter(loads))
for _, packed in loader._prefetched:
    packed.result()
print(*loader._processes.pids, flush=True)
input()
"""


def test_loading_processes_die_with_a_worker_that_is_killed_and_the_next_one_clears_up() -> None:
    """Or what lost workers leave would fill a node's memory and disk."""
    with tempfile.TemporaryDirectory() as folder:
        command, environment = [sys.executable, "-c", PARENT], {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
            assert parent.stdout is not None
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(pids) == 2
            parent.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "they outlive it")
        batches = tuple(f"mx_{pid:x}_" for pid in pids)
        assert not [file for file in os.listdir("/dev/shm") if file.startswith(batches)], "they had a name"
        assert len(os.listdir(folder)) == 1, "all that is left lies in one folder"
        remove_stale_folders(Path(folder))
        assert os.listdir(folder) == []


def test_a_loader_of_another_length_and_one_made_too_late_or_used_alone_are_refused() -> None:
    net = mlp()
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd")
    loader = job.loader([(FEATURES[0], LABELS[0])] * 5)
    with pytest.raises(RuntimeError, match="inside"):
        next(iter(loader))
    with pytest.raises(ValueError, match="num_workers"):
        job.loader([], num_workers=-1)
    epoch = next(iter(job.epochs(1, samples=6, global_batch=2)))
    assert trainer.learning_rate
    with pytest.raises(ValueError, match="has 5 samples"):
        next(epoch.batches(loader))
    with pytest.raises(RuntimeError, match=r"job.loader\(\) within the loop"):
        job.loader([])


def test_gluons_own_line_needs_its_first_word_changed_and_no_other() -> None:
    """`DataLoader(...)`, `enumerate(loader)`, `len(loader)`: the rest of the lines stays."""
    net, job, counted = mlp(), ElasticJob.join(), list[int]()
    loader = job.loader(list(zip(FEATURES, LABELS, strict=True)), batch_size=BATCH, shuffle=True, last_batch="keep")
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS):
        for i, (x, y) in enumerate(loader):
            counted.append(epoch * len(loader) + i)
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        with pytest.raises(RuntimeError, match="second pass"):
            next(iter(loader))
    assert counted == list(range(EPOCHS * 4))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shuffle": False}, "Shards"),
        ({"last_batch": "discard"}, "no whole batch"),
        ({"batch_size": SAMPLES + 1, "last_batch": "discard"}, "no whole batch"),
        ({"last_batch": "rollover"}, "'discard' to leave it out"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_what_gluons_loader_would_do_otherwise_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ElasticJob.join().loader([0.0] * SAMPLES, **options)


@pytest.mark.parametrize("options", [{}, {"samples": 6, "global_batch": 2}])
def test_loaders_of_different_lengths_are_sent_to_one_dataset_before_the_loop(options: dict[str, int]) -> None:
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd")
    for samples in (6, 4):
        job.loader([(FEATURES[0], LABELS[0])] * samples, 2)
    with pytest.raises(ValueError, match=r"loaders of 4 and 6 samples in one loop.*batch_sampler"):
        next(iter(job.epochs(1, **options)))


def test_a_job_whose_loader_and_epochs_say_different_things_is_refused() -> None:
    job, net = ElasticJob.join(), mlp()
    job.trainer(net.collect_params(), "sgd")
    with pytest.raises(ValueError, match=r"make a job\.loader"):
        job.epochs(1)
    job.loader([0.0] * SAMPLES, batch_size=BATCH)
    with pytest.raises(ValueError, match="give it once"):
        job.epochs(1, global_batch=BATCH + 1)


def test_indices_for_a_loader_of_ones_own_are_this_workers_share_of_each_step() -> None:
    taken: list[list[int]] = []

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for indices in epoch.indices():
                taken.append(indices.tolist())
                with autograd.record():
                    loss = CROSS(net(mx.nd.array(FEATURES[indices])), mx.nd.array(LABELS[indices]))
                loss.backward()
                trainer.step(BATCH)

    Conductor({0: 2}).run(script)
    assert sorted(index for indices in taken for index in indices) == list(range(SAMPLES))
    first, *others = sorted(map(len, taken), reverse=True)
    assert first == BATCH // 2 + 1, "in the first step no two shares that a script may mean are alike"
    assert max(others) == BATCH // 2
