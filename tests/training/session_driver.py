"""Feeds a session event by event and keeps what it orders: for tests of single decisions."""

from __future__ import annotations

from typing import Any, TypeVar

from dyntrain.controller.contract.messages import Target
from dyntrain.training.events import Event, Stalled, StallOver
from dyntrain.training.protocol.messages import (
    CheckIn,
    FirstStep,
    Form,
    Formed,
    Position,
    Prepared,
    Where,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    GroupReady,
    NodeHello,
    RestartWorker,
    WorkerExited,
)
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Announce, Journal, Order, ToNode, ToWorker
from dyntrain.training.session.session import Session

E = TypeVar("E", bound=Event)
A, B, C, D = "i-0000000a", "i-0000000b", "i-0000000c", "i-0000000d"


class Driver:
    """Feeds a session and keeps what it orders."""

    def __init__(self, workers: int = 2, **options: Any) -> None:
        self.now = 100.0
        self.options = Options(cluster="c", job="j", started_at=1.0, limits=Limits(1, 4), workers=workers, **options)
        self.session = Session.restore(self.options, lambda: "transfer", [], self.now)
        self.orders: list[Order] = []
        self.revision = 0

    def do(self, method: str, *arguments: Any) -> list[Order]:
        orders = getattr(self.session, method)(*arguments, self.now)
        self.orders += orders
        return orders

    def node(self, name: str, base: bool = True, worker_pid: int | None = None, life: str = "") -> None:
        ip = f"10.0.0.{int(name[-1], 16)}"
        hello = NodeHello(
            cluster="c", instance_id=name, private_ip=ip, attempt=1, base=base, worker_pid=worker_pid, life=life
        )
        self.do("node_connected", hello)
        if base:
            self.do("group_ready", name, GroupReady(scheduler_port=10_000, blanks=2))

    def worker(self, name: str, pid: int = 0, **fields: Any) -> list[Order]:
        agreed = {"epochs": 3, "samples": 20, "global_batch": 10, "seed": 0, "layout": "x"}
        hello = WorkerHello(
            cluster="c",
            instance_id=name,
            private_ip="10.0.0.1",
            pid=pid or int(name[-1], 16),
            state_port=9000,
            **{**agreed, **fields},
        )
        return self.do("worker_connected", hello)

    def want(self, *names: str, replacing: dict[str, str] | None = None) -> list[Order]:
        self.revision += 1
        return self.do("new_target", Target.of(self.revision, names).model_copy(update={"replacing": replacing or {}}))

    def form(self, *names: str) -> list[Order]:
        orders = []
        for name in names:
            orders += self.do("worker_prepared", name, Prepared(generation=self.session.job.number))
        for name in names:
            orders += self.do("worker_formed", name, Formed(generation=self.session.job.number, digest="same"))
        for name in names:
            orders += self.do("first_step", name, FirstStep(generation=self.session.job.number))
        return orders

    def check_in(self, *names: str, epoch: int = 1, **fields: Any) -> list[Order]:
        orders = []
        for name in names:
            orders += self.do(
                "check_in",
                name,
                CheckIn(
                    generation=self.session.job.number,
                    position=Position(epoch=epoch, offset=0, step=2 * epoch),
                    pid=1,
                    **fields,
                ),
            )
        return orders

    def train(self, *names: str) -> None:
        for name in names:
            self.node(name)
            self.worker(name)
        self.want(*names)
        self.form(*names)
        assert self.session.job.phase is Phase.TRAINING

    def prepare(self, *names: str) -> list[Order]:
        return [
            order
            for name in names
            for order in self.do("worker_prepared", name, Prepared(generation=self.session.job.number))
        ]

    def exits(self, name: str, pid: int = 0) -> list[Order]:
        return self.do("worker_exited", name, WorkerExited(pid=pid or int(name[-1], 16), code=-9, reason="killed"))

    def blanks(self, name: str) -> list[Order]:
        return self.do("group_ready", name, GroupReady(scheduler_port=10_001, blanks=2))


def forms(orders: list[Order]) -> dict[str, Form]:
    return {
        order.instance_id: order.message
        for order in orders
        if isinstance(order, ToWorker) and isinstance(order.message, Form)
    }


def announced(orders: list[Order], kind: type[E]) -> list[E]:
    return [order.event for order in orders if isinstance(order, Announce) and isinstance(order.event, kind)]


def restarted(orders: list[Order]) -> set[str]:
    return {
        order.instance_id for order in orders if isinstance(order, ToNode) and isinstance(order.message, RestartWorker)
    }


def words(orders: list[Order]) -> list[tuple[str, str]]:
    return [(order.instance_id, order.message.type) for order in orders if isinstance(order, ToWorker)]


def come_back(driver: Driver, *nodes: str, records: int | None = None) -> None:
    """SIGKILL of the coordinator, and a new one with the journal as far as it was written; these nodes find it."""
    journal = [order.entry for order in driver.orders if isinstance(order, Journal)][:records]
    driver.session = Session.restore(driver.options, lambda: "transfer", journal, driver.now)
    driver.revision -= 1
    driver.want(A, B)
    for name in nodes:
        driver.node(name, worker_pid=int(name[-1], 16))
        driver.blanks(name)


def decided(orders: list[Order]) -> list[Order]:
    """Without what only tells who keeps the others waiting, and asks for that."""
    return [
        order
        for order in orders
        if not (isinstance(order, ToWorker) and isinstance(order.message, Where))
        and not (isinstance(order, Announce) and isinstance(order.event, Stalled | StallOver))
    ]
