"""Another engine than ps-lite under the unchanged coordinator, membership, state and job: it proves what the interface
needs and no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from job_bed import JobBed, Supervisor, free_port, instance
from pydantic import SecretStr

import mxnet as mx  # isort: skip
from dyntrain.controller.contract.messages import ControlFile, CoordinatorEndpoint
from dyntrain.training.engine.allreduce import HorovodStore
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.node_messages import GroupReady, Retire
from dyntrain.training.worker.data.batches import ArrayBatches, fetch_samples
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.membership.coordinated import CoordinatedMembership
from mxnet import autograd, gluon


class _Group:
    """The threads of one generation; they push the same keys in the same order."""

    def __init__(self, workers: int) -> None:
        self._workers, self._arrived, self._round = workers, 0, 0
        self._sums: list[Any] = []
        self._changed = threading.Condition()
        self.formed = threading.Barrier(workers, timeout=patient(20))

    def sum(self, value: Any) -> Any:
        with self._changed:
            number = self._round
            if len(self._sums) == number:
                self._sums.append(np.zeros_like(value))
            self._sums[number] += value
            self._arrived += 1
            if self._arrived == self._workers:
                self._arrived, self._round = 0, number + 1
                self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._round > number, 20), "somebody did not push"
            return self._sums[number]


class _Store:
    def __init__(self, group: _Group) -> None:
        self._group = group

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        values = value if isinstance(value, list) else [value]
        targets = values if out is None else out if isinstance(out, list) else [out]
        total = self._group.sum(values[0].asnumpy())
        for target in targets:
            target[:] = mx.nd.array(total, dtype=total.dtype)

    def parts_of(self, key_numbers: Sequence[int]) -> Sequence[Any]:
        return []  # nobody is killed here

    def pushpull_part(self, part: Any, flat: Any) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        """What is pushed is dealt with at once."""

    def watch(self, array: Any) -> Callable[[], bool]:
        raise NotImplementedError

    def has_answer(self, part: Any) -> bool:
        raise NotImplementedError


class Loopback:
    """Sums in the memory of one process, whose threads are the workers."""

    name: EngineName = "pslite"  # nobody started another's processes for it
    release: Literal["zeros", "error"] = "zeros"
    groups: ClassVar[dict[str, _Group]] = {}
    lock = threading.Lock()

    def __init__(self) -> None:
        self._store: _Store | None = None
        self.formed = 0

    @property
    def kvstore(self) -> _Store:
        assert self._store is not None, "no generation is formed"
        return self._store

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        with self.lock:
            group = self.groups.setdefault(
                environment["DMLC_PS_ROOT_PORT"], _Group(int(environment["DMLC_NUM_WORKER"]))
            )
        group.formed.wait()
        self._store, self.formed = _Store(group), self.formed + 1
        return {"create": 0.0}

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def wait(self, array: Any) -> None:
        array.wait_to_read()

    def break_off(self) -> None:
        raise NotImplementedError

    def dissolve(self) -> None:
        self._store = None

    def abandon(self) -> None:
        """Nothing is held."""


class _Foreseeing(Loader):
    """Notes what it is told to expect while the engine forms, and what is taken first after that."""

    def __init__(self, dataset: Any, engine: Loopback) -> None:
        super().__init__(dataset)
        self._engine = engine
        self.expected: list[tuple[int, list[int]]] = []
        self.taken: list[tuple[int, list[int]]] = []

    def start_prefetch(self, loads: Iterator[Load]) -> None:
        self.expected.append((self._engine.formed + 1, next(loads).indices.tolist()))

    def take(self, loads: Iterator[Load]) -> Any:
        load = next(loads)
        if not self.taken or self.taken[-1][0] != self._engine.formed:
            self.taken.append((self._engine.formed, load.indices.tolist()))
        return fetch_samples(self.dataset, load.indices)


class _Host(Supervisor):
    """A node whose worker is a thread, and whose offer of ps-lite processes is a number that the engine uses as it
    likes.
    """

    weights: np.ndarray[Any, Any] | None = None
    engine: Loopback
    loader: _Foreseeing
    thread: threading.Thread | None = None

    async def _offer_group(self) -> None:
        await self._say(GroupReady(scheduler_port=free_port(self.ip), blanks=2))

    async def _take(self, order: Any, endpoint: CoordinatorEndpoint) -> None:
        if isinstance(order, Retire):
            await super()._take(order, endpoint)
        elif order.type == "start_group":
            await self._offer_group()
        elif order.type == "welcome" and self.thread is None:
            self.thread = threading.Thread(target=self._train, args=(endpoint,), daemon=True)
            self.thread.start()

    def _train(self, endpoint: CoordinatorEndpoint) -> None:
        control = ControlFile(
            cluster="bed",
            job=endpoint.job,
            instance_id=self.name,
            private_ip=self.ip,
            url=endpoint.url,
            certificate=endpoint.certificate,
            token=SecretStr(self.bed.hosts.token),
            mount=str(self.bed.folder),
        )
        self.engine = Loopback()
        job = ElasticJob(CoordinatedMembership(control, self.engine))
        rng = np.random.default_rng(7)
        data = ArrayBatches(rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 2, 30).astype(np.int32))
        self.loader = _Foreseeing(data, self.engine)
        job._loop.loading.loaders.append(self.loader)
        net = gluon.nn.Dense(2, in_units=4)
        net.initialize(mx.init.Xavier())
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        go_on = self.bed.folder / "go-on"
        for epoch in job.epochs(150, samples=len(data), global_batch=6):
            if not go_on.exists():
                time.sleep(0.1)
            for x, y in epoch.batches(self.loader):
                with autograd.record():
                    value = loss(net(x), y)
                value.backward()
                trainer.step(len(y))
        self.weights = net.weight.data().asnumpy()
        job.close()  # the process goes on


@pytest.mark.jobs
def test_another_engine_trains_takes_a_worker_in_and_keeps_the_weights_equal(tmp_path: Path) -> None:
    bed = JobBed(tmp_path, [])
    try:
        bed.supervisor = _Host
        bed.begin("AB")
        bed.add_node("C")
        bed.wait_for(bed.saw("worker_ready", "C"), 20, "C stands by")
        bed.want("ABC")
        bed.wait_for(bed.saw("joined", "C"), 20, "C joins")
        (tmp_path / "go-on").touch()
        bed.finish(40)
        hosts = [bed.supervisors[instance(letter)] for letter in "ABC"]
        bed.wait_for(
            lambda: all(host.weights is not None for host in hosts if isinstance(host, _Host)), 20, "all have finished"
        )
        weights = [host.weights for host in hosts if isinstance(host, _Host)]
        assert [host.engine.formed for host in hosts if isinstance(host, _Host)] == [2, 2, 1]
        assert all(
            np.array_equal(weights[0], other) for other in weights[1:] if other is not None and weights[0] is not None
        )
        assert bed.audit().exact
        for host in hosts:
            assert isinstance(host, _Host)
            expected = dict(host.loader.expected)  # the last word of several on one generation: it may be said again
            assert host.loader.taken
            assert all(expected.get(number) == rows for number, rows in host.loader.taken), (
                "loading begins while the group forms"
            )
    finally:
        bed.close()


def test_what_is_wrong_before_the_job_is_entered_is_said_in_its_own_words(tmp_path: Path) -> None:
    """Nobody can be told yet: the process' last output is what a person has to go by."""
    control = ControlFile(
        cluster="bed",
        job="job-1",
        instance_id=instance("A"),
        private_ip="127.0.0.1",
        url="wss://127.0.0.1:1",
        certificate="none",
        token=SecretStr("t"),
        mount=str(tmp_path),
    )
    job = ElasticJob(CoordinatedMembership(control, Loopback()))
    net = gluon.nn.Dense(2)
    net.initialize()
    job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with pytest.raises(ValueError, match=r"not initialised: call net.initialize\(\) and pass one example"):
        next(iter(job.epochs(1, samples=10, global_batch=5)))


def test_devices_with_arrays_of_numpys_kind_are_added_up_before_horovod_sums_them() -> None:
    """`npx.set_np()` with several devices: their sum was an error in the first step."""
    given = []
    horovod = SimpleNamespace(Sum="sum", allreduce_=lambda array, op, name, priority: given.append(array.asnumpy()))
    devices = [mx.np.array([1.0, 2.0]), mx.np.array([10.0, 20.0])]
    HorovodStore(horovod).pushpull("w", devices)
    np.testing.assert_array_equal(given, [[11, 22]])
    for device in devices:
        np.testing.assert_array_equal(device.asnumpy(), [11, 22])
