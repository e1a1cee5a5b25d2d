"""T22, the session's part: a base node and its successor are exchanged at one boundary, ps-lite servers and all. Else
state goes with the machine.
"""

from __future__ import annotations

import pytest
from dyntrain.training.events import Forming
from dyntrain.training.protocol.engines import SERVER_MEMORY
from dyntrain.training.protocol.messages import Position, StepStatus
from dyntrain.training.protocol.node_messages import GroupReady, StartGroup
from dyntrain.training.session.generation.generation import Cause
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Order, ToNode
from session_driver import A, B, C, D, Driver, announced, forms, restarted, words


@pytest.fixture
def driver() -> Driver:
    """A runs the coordinator; B is to be replaced by C, which stands by and is no base node yet. All the others' blanks
    are ready again.
    """
    driver = Driver(workers=2)
    driver.train(A, B)
    driver.node(C, base=False)
    driver.worker(C)
    driver.blanks(A)
    driver.blanks(B)
    return driver


def servers(orders: list[Order]) -> dict[str, list[str]]:
    """Which roles each node was handed."""
    return {
        order.instance_id: [process.role for process in order.message.processes]
        for order in orders
        if isinstance(order, ToNode) and isinstance(order.message, StartGroup)
    }


def test_t22_the_servers_move_with_the_exchange_at_one_boundary_and_nothing_is_lost(driver: Driver) -> None:
    driver.want(A, C, replacing={B: C})
    driver.blanks(C)
    orders = driver.check_in(A, B)
    assert set(forms(orders)) == {A, C}
    assert servers(orders) == {A: ["scheduler", "server"], C: ["server"]}
    assert {name: form.fetch for name, form in forms(orders).items()} == {A: False, C: True}
    assert (B, "leave") in words(orders)
    assert driver.session.job.position == Position(epoch=1, offset=0, step=2), "where both had checked in"
    assert [(change.cause, change.joining, change.leaving) for change in announced(orders, Forming)] == [
        (Cause.CHANGE.value, (C,), (B,))
    ]
    driver.do("worker_left", B)
    driver.form(A, C)
    driver.do("node_lost", B)
    assert (driver.session.job.phase, driver.session.job.number, restarted(driver.orders)) == (Phase.TRAINING, 2, set())


@pytest.mark.parametrize(("summed", "memory"), [(300, 600), (0, 0), (2 << 40, 1 << 30)])
def test_a_server_is_told_how_much_memory_a_step_of_all_workers_takes(summed: int, memory: int) -> None:
    """Four workers and two servers, of which each has half of the bytes; up to a bound."""
    driver = Driver(workers=4)
    for name in (A, B, C, D):
        driver.node(name, base=name in (A, B))
        driver.worker(name, summed_bytes=summed)
    driver.want(A, B, C, D)
    starts = [order.message for order in driver.orders if isinstance(getattr(order, "message", None), StartGroup)]
    memories = [
        (process.role, process.environment.get(SERVER_MEMORY)) for start in starts for process in start.processes
    ]
    assert memories == [("scheduler", None), ("server", str(memory)), ("server", str(memory))]


def test_t22_until_the_successor_can_serve_nobody_is_exchanged(driver: Driver) -> None:
    """Were the old one to go first, the servers would move twice; were the new one to come first, the job would be
    formed twice.
    """
    driver.want(A, C, replacing={B: C})
    orders = driver.check_in(A, B)
    assert forms(orders) == {}
    assert words(orders) == [(A, "proceed"), (B, "proceed")]
    assert B in {member.instance_id for member in driver.session.report(driver.now).members}, "it may not be terminated"
    driver.blanks(C)
    assert set(forms(driver.check_in(A, B, epoch=2))) == {A, C}


def test_t22_an_elastic_member_becomes_the_base_node_it_replaces(driver: Driver) -> None:
    driver.want(A, B, C)
    driver.check_in(A, B)
    driver.form(A, B, C)
    for name in (A, B, C):
        driver.blanks(name)
    driver.want(A, C, replacing={B: C})
    orders = driver.check_in(A, B, C, epoch=2)
    assert set(forms(orders)) == {A, C}
    assert set(servers(orders)) == {A, C}


def test_t22_a_member_that_cannot_serve_yet_trains_on_beside_the_old_one(driver: Driver) -> None:
    driver.want(A, B, C)
    driver.check_in(A, B)
    driver.form(A, B, C)
    driver.want(A, C, replacing={B: C})
    driver.blanks(A)
    driver.blanks(B)
    assert words(driver.check_in(A, B, C, epoch=2)) == [(A, "proceed"), (B, "proceed"), (C, "proceed")]


def test_t22_the_old_ones_worker_is_lost_first_and_its_servers_are_given_up_with_it(driver: Driver) -> None:
    driver.want(A, C, replacing={B: C})
    driver.check_in(A, B)
    driver.blanks(C)
    driver.exits(B)
    assert driver.session.job.phase is Phase.RELEASING
    assert B in {member.instance_id for member in driver.session.report(driver.now).members}, (
        "its servers are in use until A is free"
    )
    orders = driver.do(
        "step_status",
        A,
        StepStatus(generation=1, phase="out", position=Position(epoch=0, offset=0, step=0), answered=0),
    )
    assert servers(orders) == {A: ["scheduler", "server"], C: ["server"]}


def test_t22_where_the_old_one_is_lost_its_successor_joins_without_being_able_to_serve_yet(driver: Driver) -> None:
    """There is nothing to exchange any more, and the old one's machine may be ended at any time: no server may be
    placed there.
    """
    driver.want(A, C, replacing={B: C})
    driver.exits(B)
    orders = driver.do(
        "step_status",
        A,
        StepStatus(generation=1, phase="out", position=Position(epoch=0, offset=0, step=0), answered=0),
    )
    assert (set(forms(orders)), set(servers(orders))) == ({A, C}, {A})


def test_t22_a_successor_that_is_lost_while_it_joins_leaves_the_others_their_state(driver: Driver) -> None:
    driver.want(A, C, replacing={B: C})
    driver.blanks(C)
    driver.check_in(A, B)
    driver.exits(C)
    driver.do("node_lost", C)
    driver.blanks(A)
    assert driver.session.job.phase is Phase.PREPARING
    assert set(driver.session.job.round.forms) == {A}
    assert A not in restarted(driver.orders)


def test_t22_after_a_restart_the_replaced_node_is_not_counted_on(driver: Driver) -> None:
    """The controller has read that it is no member, and may end its machine at any time."""
    driver.want(A, C, replacing={B: C})
    driver.blanks(C)
    driver.exits(A)
    driver.exits(B)
    orders = driver.worker(A, pid=110)
    assert (set(forms(orders)), set(servers(orders))) == ({A, C}, {A, C})


def elastic(driver: Driver, name: str) -> None:
    """Its blanks are ready, and it is no base node."""
    driver.do("group_ready", name, GroupReady(scheduler_port=10_002, blanks=2, base=False))


@pytest.mark.parametrize(("setting", "serve"), [("base", {A, B}), ("all", {A, B, C})])
def test_servers_are_on_base_nodes_or_on_all_members_and_on_no_node_that_stands_by(
    setting: str, serve: set[str]
) -> None:
    """64 workers on two base nodes would wait for those two nodes' links."""
    driver = Driver(servers=setting)
    driver.node(C, base=False)
    driver.worker(C)
    elastic(driver, C)
    driver.train(A, B)
    assert set(servers(driver.orders)) == {A, B}, "C stands by"
    driver.want(A, B, C)
    for name in (A, B):
        driver.blanks(name)
    orders = driver.check_in(A, B)
    assert set(servers(orders)) == serve
    assert [name for name, roles in servers(orders).items() if "scheduler" in roles] == [A]


@pytest.fixture
def everywhere() -> Driver:
    """Three members with servers on each, of which C is no base node; all have blanks for the next change."""
    driver = Driver(servers="all")
    driver.node(C, base=False)
    driver.worker(C)
    elastic(driver, C)
    driver.train(A, B)
    driver.want(A, B, C)
    for name in (A, B):
        driver.blanks(name)
    driver.check_in(A, B)
    driver.form(A, B, C)
    for name in (A, B):
        driver.blanks(name)
    elastic(driver, C)
    return driver


def test_with_servers_on_all_members_one_that_leaves_restarts_nobody(everywhere: Driver) -> None:
    everywhere.want(A, B)
    orders = everywhere.check_in(A, B, C, epoch=2)
    assert (set(forms(orders)), set(servers(orders))) == ({A, B}, {A, B})
    everywhere.do("worker_left", C)
    everywhere.form(A, B)
    everywhere.do("node_lost", C)
    everywhere.now += everywhere.options.clocks.patience
    everywhere.check_in(A, B, epoch=2)
    assert restarted(everywhere.do("tick")) == set()


def test_with_servers_on_all_members_the_loss_of_any_machine_restarts_the_workers(everywhere: Driver) -> None:
    """What its server held of the step at hand is gone; nobody may wait for it for ever."""
    everywhere.do("worker_disconnected", C, 0xC)
    everywhere.do("node_lost", C)
    orders: list[Order] = []
    for _ in range(int(everywhere.options.clocks.liveness) + 2):
        everywhere.now += 1
        orders += everywhere.do("tick")
    assert {A, B} <= restarted(orders)


def test_an_elastic_nodes_servers_alone_start_no_job() -> None:
    """The scheduler runs on a base node: whoever leaves would take it along."""
    driver = Driver(workers=1, servers="all")
    driver.node(C, base=False)
    driver.worker(C)
    elastic(driver, C)
    assert forms(driver.want(C)) == {}
