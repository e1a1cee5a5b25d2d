"""A generation that is undone, taken back or restarted: what would break for a user is a process of it that goes on, a
server of it that stays, or a job that tries the same for ever.
"""

from __future__ import annotations

import pytest
from dyntrain.training.journal import MembersGivenUp, Restarted, TakenBack
from dyntrain.training.protocol.messages import START, Committed, Position, StepStatus
from dyntrain.training.protocol.node_messages import GroupFailed, RestartWorker, StopGroup
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.job.trouble import FORMATIONS
from dyntrain.training.session.orders import DropWorker, Journal, Order, ToNode
from session_driver import A, B, C, Driver, forms, restarted

ONE = Position(epoch=1, offset=0, step=2)


def stopped(orders: list[Order]) -> set[tuple[str, int]]:
    messages = [(order.instance_id, order.message) for order in orders if isinstance(order, ToNode)]
    return {(name, message.generation) for name, message in messages if isinstance(message, StopGroup)}


def fails(driver: Driver) -> list[Order]:
    return driver.do("group_failed", A, GroupFailed(generation=driver.session.job.number, reason="port taken"))


def settled(three: Driver, *names: str) -> Driver:
    """Generation 2 of these is ordered, and nobody has begun to form it."""
    three.want(*names)
    three.check_in(A, B, C)
    assert three.session.job.phase is Phase.PREPARING
    return three


def test_a_restart_ends_all_processes_of_the_generation_and_its_servers(three: Driver) -> None:
    orders = fails(three)
    assert {order.instance_id for order in orders if isinstance(order, DropWorker)} == {A, B, C}
    assert restarted(orders) == {A, B, C}
    assert stopped(orders) == {(A, 1), (B, 1), (C, 1)}


def test_a_restart_is_written_down_before_anybody_is_ended(three: Driver) -> None:
    """A coordinator that dies in between must not take the members' processes for what it journaled."""
    orders = fails(three)
    kinds = [type(order.entry) if isinstance(order, Journal) else type(order) for order in orders]
    assert kinds.index(Restarted) < min(kinds.index(DropWorker), kinds.index(ToNode))


def test_a_node_that_was_away_in_a_restart_is_told_when_it_is_back(three: Driver) -> None:
    three.do("node_lost", C)
    assert restarted(fails(three)) == {A, B}
    three.orders.clear()
    three.node(C, worker_pid=0xC)
    assert restarted(three.orders) == {C}


@pytest.mark.parametrize("stage", ["stands", "prepares", "waits", "trains"])
def test_a_process_that_was_ended_by_a_restart_is_not_taken_in_again(three: Driver, stage: str) -> None:
    """Its node ends it, and would restart the generation that it is in."""
    fails(three)
    orders = three.worker(C, generation=1, stage=stage, position=START)
    assert [order.instance_id for order in orders if isinstance(order, DropWorker)] == [C]
    assert C not in three.session.job.roster.standing
    three.worker(C, pid=99)
    assert C in three.session.job.roster.standing, "its next one is"


def test_a_formation_that_is_restarted_counts_as_one_and_a_loss_while_all_train_does_not(three: Driver) -> None:
    """Ten in a row that came to nothing end the job."""
    settled(three, A, B)
    three.prepare(A, B)
    assert three.session.job.phase is Phase.FORMING
    fails(three)
    assert three.session.job.trouble.formations == 1
    other = Driver()
    other.train(A, B)
    fails(other)
    assert other.session.job.trouble.formations == 0


def test_a_generation_that_is_taken_back_leaves_no_servers_and_no_process_ended(three: Driver) -> None:
    settled(three, A, B)
    orders = fails(three)
    assert stopped(orders) == {(A, 2), (B, 2), (C, 2)}
    assert (restarted(orders), [order for order in orders if isinstance(order, DropWorker)]) == (set(), [])


def test_a_joiner_of_a_generation_that_is_taken_back_stands_by_and_holds_nobody_up(three: Driver) -> None:
    """Also one without a connection: nobody waits for it, as it is no member any more."""
    driver = Driver()
    driver.train(A, B)
    driver.node(C, base=False)
    driver.worker(C)
    driver.want(A, B, C)
    driver.blanks(A)
    driver.check_in(A, B)
    driver.do("worker_disconnected", C, 0xC)
    fails(driver)
    job = driver.session.job
    assert (job.phase, set(job.roster.members), job.roster.absent) == (Phase.PARKED, {A, B}, {})
    assert job.round.instances == (A, B), "and who holds the state is what is left of it"
    assert set(forms(driver.blanks(A))) == {A, B, C}


def test_who_had_prepared_has_no_lines_of_the_script_left_to_run_before_the_next_order(three: Driver) -> None:
    """It has the time of a formation for it, not that of an epoch's end."""
    settled(three, A, B)
    three.prepare(A)
    fails(three)
    assert three.session.job.round.waits == {A, B, C}


def test_who_had_prepared_after_a_loss_has_none_left_either(three: Driver) -> None:
    three.exits(C)
    for name in (A, B):
        three.do("step_status", name, StepStatus(generation=1, phase="held", position=START, answered=0))
    assert (three.session.job.phase, three.session.job.round.waits) == (Phase.PREPARING, frozenset())
    three.prepare(A)
    fails(three)
    assert three.session.job.round.waits == {A}, "B may be anywhere"


def test_ten_formations_in_a_row_end_the_job_with_all_that_was_to_be_done(three: Driver) -> None:
    settled(three, A, B)
    three.session.job.trouble.formations = FORMATIONS - 1
    orders = fails(three)
    assert three.session.job.phase is Phase.OVER
    assert stopped(orders) == {(A, 2), (B, 2), (C, 2)}, "no server outlives the job"


def test_only_a_generation_of_which_nobody_holds_the_state_is_forgotten_by_the_next_coordinator(three: Driver) -> None:
    """The holders keep theirs, and are waited for."""
    settled(three, A, B)
    written = [order.entry for order in fails(three) if isinstance(order, Journal)]
    assert not [entry for entry in written if isinstance(entry, TakenBack)]
    first = Driver()
    for name in (A, B):
        first.node(name)
        first.worker(name)
    first.want(A, B)
    written = [order.entry for order in fails(first) if isinstance(order, Journal)]
    assert [entry.generation for entry in written if isinstance(entry, TakenBack)] == [1]


def test_a_restart_says_from_which_commit(three: Driver) -> None:
    three.do("commit_written", A, Committed(generation=1, position=ONE, name="c1"))
    fails(three)
    assert three.session.job.commit == (ONE, "c1")
    assert not [
        order for order in three.orders if isinstance(order, Journal) and isinstance(order.entry, MembersGivenUp)
    ]


def test_each_process_is_ended_by_its_own_number(three: Driver) -> None:
    """An order about another one would be taken for an old one, and change nothing."""
    messages = [(order.instance_id, order.message) for order in fails(three) if isinstance(order, ToNode)]
    assert {(name, message.pid) for name, message in messages if isinstance(message, RestartWorker)} == {
        (A, 0xA),
        (B, 0xB),
        (C, 0xC),
    }
