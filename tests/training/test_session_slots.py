"""Several worker processes a node, one for each of its GPUs: a node comes with all of them and goes with all of them.
With a part of them the ranks of a machine would not be one after another, and its GPUs would train for nobody.
"""

from __future__ import annotations

from typing import Any

from dyntrain.training import events
from dyntrain.training.protocol.messages import Leave, StepStatus, WorkerHello
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello, RestartWorker
from dyntrain.training.protocol.slots import Place, name_of, places
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, ToNode, ToWorker
from session_driver import A, B, C, Driver, announced, forms

A0, A1, B0, B1, C0, C1 = A, f"{A}:1", B, f"{B}:1", C, f"{C}:1"


class Slots(Driver):
    """Nodes with two processes each."""

    def host(self, instance: str, slots: int = 2, base: bool = True) -> None:
        for slot in range(slots):
            hello = {"cluster": "c", "instance_id": instance, "private_ip": f"10.0.0.{instance[-1]}"}
            greeting = NodeHello.model_validate({**hello, "slot": slot, "slots": slots, "attempt": 1, "base": base})
            self.do("node_connected", greeting)
        if base:
            self.do("group_ready", instance, GroupReady(scheduler_port=10_000, blanks=2))

    def process(self, instance: str, slot: int, slots: int = 2, pid: int = 0, **fields: Any) -> list[Order]:
        agreed = {"epochs": 9, "samples": 20, "global_batch": 10, "seed": 0, "layout": "x", "state_port": 9000}
        pid = pid or 10 * int(instance[-1], 16) + slot
        hello = {"cluster": "c", "instance_id": instance, "private_ip": "10.0.0.1", "pid": pid, "slot": slot}
        return self.do("worker_connected", WorkerHello.model_validate({**agreed, **hello, "slots": slots, **fields}))

    def trains(self, *instances: str) -> None:
        for instance in instances:
            self.host(instance)
            for slot in range(2):
                self.process(instance, slot)
        self.want(*instances)
        self.form(*(name_of(instance, slot) for instance in instances for slot in range(2)))
        assert self.session.job.phase is Phase.TRAINING


def members(driver: Driver) -> tuple[str, ...]:
    return driver.session.job.round.instances


def leaves(orders: list[Order]) -> dict[str, str]:
    to_workers = [order for order in orders if isinstance(order, ToWorker)]
    return {order.instance_id: order.message.reason for order in to_workers if isinstance(order.message, Leave)}


def restarts(orders: list[Order]) -> dict[str, int | None]:
    to_nodes = [order for order in orders if isinstance(order, ToNode)]
    return {order.instance_id: order.message.pid for order in to_nodes if isinstance(order.message, RestartWorker)}


def test_the_first_generation_waits_for_all_processes_of_its_nodes() -> None:
    driver = Slots(2)
    driver.host(A)
    driver.host(B)
    driver.want(A, B)
    for instance, slot in ((A, 0), (A, 1), (B, 1)):
        assert not forms(driver.process(instance, slot))

    ordered = forms(driver.process(B, 0))

    assert list(ordered) == [A0, A1, B0, B1], "the ranks of a node are one after another"
    assert [ordered[name].cross_rank for name in ordered] == [0, 0, 1, 1]
    assert {order.workers for order in ordered.values()} == {4}


def test_a_node_joins_once_all_its_processes_stand_by() -> None:
    driver = Slots(1)
    driver.trains(A)
    driver.want(A, B)
    driver.host(B, base=False)
    driver.process(B, 0)
    driver.blanks(A)
    driver.check_in(A0, A1)
    assert members(driver) == (A0, A1)

    driver.process(B, 1)
    driver.check_in(A0, A1, epoch=2)

    assert members(driver) == (A0, A1, B0, B1)


def test_a_node_that_is_not_wanted_leaves_with_all_its_processes() -> None:
    driver = Slots(2)
    driver.trains(A, B)
    driver.want(A)
    driver.blanks(A)

    orders = driver.check_in(A0, A1, B0, B1)

    assert members(driver) == (A0, A1)
    assert leaves(orders) == {B0: "not in the target", B1: "not in the target"}


def lose(driver: Slots, name: str, *left: str) -> list[Order]:
    """In a step of the others, which free themselves."""
    orders = driver.exits(name, pid=driver.session.job.roster.members[name].pid)
    for survivor in left:
        at, number = driver.session.job.position, driver.session.job.number
        status = StepStatus(generation=number, phase="out", position=at, answered=0)
        orders += driver.do("step_status", survivor, status)
    return orders


def test_a_process_that_dies_takes_the_others_of_its_node_out_of_the_job_and_all_come_again() -> None:
    driver = Slots(2)
    driver.trains(A, B)
    driver.blanks(A)

    orders = lose(driver, B1, A0, A1, B0)

    assert members(driver) == (A0, A1), "the other node goes on at once"
    assert restarts(orders) == {B1: 111}
    assert "all of them join again" in leaves(orders)[B0]
    assert len(announced(orders, events.WorkerLost)) == 1, "the others of its node have not failed"

    again = driver.do("worker_left", B0)
    assert restarts(again) == {B0: 110}
    driver.process(B, 0, pid=200)
    driver.process(B, 1, pid=210)
    driver.blanks(A)
    driver.form(A0, A1)
    driver.check_in(A0, A1)
    assert members(driver) == (A0, A1, B0, B1)


def test_the_last_node_waits_for_a_process_that_it_lost_and_keeps_the_state_in_the_others() -> None:
    """Nobody else could go on meanwhile; only that process is new."""
    driver = Slots(1)
    driver.trains(A)
    driver.blanks(A)

    orders = lose(driver, A1, A0)
    assert driver.session.job.phase is Phase.PARKED
    assert not leaves(orders)

    ordered = forms(driver.process(A, 1, pid=110))

    assert list(ordered) == [A0, A1]
    assert ordered[A1].fetch
    assert not ordered[A0].fetch


def test_the_last_node_goes_on_from_what_is_safe_where_its_process_does_not_come_back() -> None:
    driver = Slots(1)
    driver.trains(A)
    driver.blanks(A)
    lose(driver, A1, A0)

    driver.now += driver.options.clocks.patience + 1
    orders = driver.do("tick")

    assert [event.reason for event in announced(orders, events.Restart)] == [
        f"processes on {A} are missing, and no other node has the state"
    ]
    driver.process(A, 0, pid=1000)
    driver.process(A, 1, pid=1010)
    driver.blanks(A)
    driver.now += 10
    driver.do("tick")
    assert members(driver) == (A0, A1)


def test_a_replaced_base_node_that_lacks_a_process_serves_no_more() -> None:
    """It leaves at the formation, and then its machine may end, with the server that all need."""
    driver = Slots(3)
    driver.trains(A, B, C)
    driver.want(B, C, replacing={A: "i-0000000d"})
    for base in (A, B):
        driver.blanks(base)

    lose(driver, A1, A0, B0, B1, C0, C1)

    assert members(driver) == (B0, B1, C0, C1)
    assert A not in driver.session.job.round.group.hosts


def test_the_report_names_nodes_and_the_slowest_of_their_processes() -> None:
    driver = Slots(2)
    driver.trains(A, B)

    report = driver.session.report(driver.now)

    assert [(member.instance_id, member.rank, member.processes) for member in report.members] == [(A, 0, 2), (B, 2, 2)]
    assert all(member.active for member in report.members)


def test_an_interruption_of_a_machine_is_no_failure_of_any_of_its_processes() -> None:
    driver = Slots(1)
    driver.trains(A)
    driver.session.job.roster.interrupted.add(A)
    for pid in range(111, 130):
        lose(driver, A1, A0)
        driver.process(A, 1, pid=pid)
        driver.blanks(A)
        driver.form(A0, A1)
    assert driver.session.job.roster.cooling_record(A) is None


def test_nodes_may_have_different_numbers_of_processes() -> None:
    driver = Slots(2)
    driver.host(A, slots=1)
    driver.host(B, slots=2)
    driver.want(A, B)
    driver.process(A, 0, slots=1)
    driver.process(B, 0)
    driver.process(B, 1)
    assert members(driver) == (A0, B0, B1)
    assert places(members(driver)) == {
        A0: Place(rank=0, size=3, local_rank=0, local_size=1, cross_rank=0, cross_size=2),
        B0: Place(rank=1, size=3, local_rank=0, local_size=2, cross_rank=1, cross_size=2),
        B1: Place(rank=2, size=3, local_rank=1, local_size=2, cross_rank=0, cross_size=1),
    }


def test_horovod_is_told_where_each_process_stands_on_its_node() -> None:
    driver = Slots(2)
    for instance in (A, B):
        driver.host(instance)
        driver.process(instance, 0, engine="horovod")
        driver.process(instance, 1, engine="horovod")
    environments = {name: order.environment for name, order in forms(driver.want(A, B)).items()}
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
    assert {name: [environment[f"HOROVOD_{word}"] for word in names] for name, environment in environments.items()} == {
        A0: ["0", "4", "0", "2", "0", "2", A],
        A1: ["1", "4", "1", "2", "0", "2", A],
        B0: ["2", "4", "0", "2", "1", "2", B],
        B1: ["3", "4", "1", "2", "1", "2", B],
    }
