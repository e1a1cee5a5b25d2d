"""Another engine than ps-lite under the unchanged coordinator, membership, state and job: it proves what the interface needs and no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from job_bed import JobBed, Supervisor, free_port, instance
from pydantic import SecretStr

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import autograd, gluon

from controller.contract import ControlFile, CoordinatorEndpoint
from training.batches import ArrayBatches
from training.job import ElasticJob
from training.membership import CoordinatedMembership
from training.protocol import GroupReady, Retire


class _Group:
    """The threads of one generation; they push the same keys in the same order."""

    def __init__(self, workers: int) -> None:
        self._workers, self._arrived, self._round = workers, 0, 0
        self._sums: list[Any] = []
        self._changed = threading.Condition()
        self.formed = threading.Barrier(workers, timeout=20)

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
            target[:] = mx.nd.array(total)

    def parts_between(self, first: int, last: int) -> Sequence[Any]:
        return []  # nobody is killed here

    def pushpull_part(self, part: Any, flat: Any) -> None:
        raise NotImplementedError


class Loopback:
    """Sums in the memory of one process, whose threads are the workers."""

    groups: ClassVar[dict[str, _Group]] = {}
    lock = threading.Lock()

    def __init__(self) -> None:
        self._store: _Store | None = None
        self.formed = 0

    @property
    def kvstore(self) -> _Store:
        assert self._store is not None, "no generation is formed"
        return self._store

    def form(self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]) -> dict[str, float]:
        with self.lock:
            group = self.groups.setdefault(environment["DMLC_PS_ROOT_PORT"], _Group(int(environment["DMLC_NUM_WORKER"])))
        group.formed.wait()
        self._store, self.formed = _Store(group), self.formed + 1
        return {"create": 0.0}

    def dissolve(self) -> None:
        self._store = None

    def abandon(self) -> None:
        """Nothing is held."""


class _Host(Supervisor):
    """A node whose worker is a thread, and whose offer of ps-lite processes is a number that the engine uses as it likes."""

    weights: np.ndarray[Any, Any] | None = None
    engine: Loopback
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
        net = gluon.nn.Dense(2, in_units=4)
        net.initialize(mx.init.Xavier())
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=job.kvstore)
        go_on = self.bed.folder / "go-on"
        for epoch in job.epochs(150, net=net, trainer=trainer, samples=len(data), global_batch=6):
            if not go_on.exists():
                time.sleep(0.1)
            for x, y in epoch.batches(data):
                with autograd.record():
                    value = loss(net(x), y)
                value.backward()
                epoch.step(trainer)
        self.weights = net.weight.data().asnumpy()


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
        bed.wait_for(lambda: all(host.weights is not None for host in hosts if isinstance(host, _Host)), 20, "all have finished")
        weights = [host.weights for host in hosts if isinstance(host, _Host)]
        assert [host.engine.formed for host in hosts if isinstance(host, _Host)] == [2, 2, 1]
        assert all(np.array_equal(weights[0], other) for other in weights[1:] if other is not None and weights[0] is not None)
        assert bed.audit().exact
    finally:
        bed.close()
