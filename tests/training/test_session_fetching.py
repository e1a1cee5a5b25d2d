"""Who gets the state from whom, how long the others wait for it, and who stays out."""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.clocks import LEAST_SPEED
from dyntrain.training.protocol.messages import Fetching, Position, SafeCopy
from dyntrain.training.session.generation.chains import plan_chains
from dyntrain.training.session.job.state import Phase
from hypothesis import given
from hypothesis import strategies as st
from session_driver import A, B, C, D, Driver, come_back, forms, restarted

GIGABYTES = 4 * 10**9
COPY = SafeCopy(generation=1, position=Position(epoch=1, offset=0, step=2), name="a" * 32)
OLDER = SafeCopy(generation=1, position=Position(epoch=0, offset=0, step=1), name="b" * 32)


@given(st.integers(1, 6), st.integers(0, 30))
def test_everybody_is_behind_a_holder_and_nobody_asks_in_a_circle(holders: int, lacking: int) -> None:
    """A circle of members that wait for each other would hold the job up for ever."""
    have, lack = [f"h{i}" for i in range(holders)], [f"r{i}" for i in range(lacking)]
    asks = plan_chains(have, lack)
    assert list(asks) == lack
    for number, instance in enumerate(lack):
        assert set(have) <= set(asks[instance]), "when all in front of it are lost, it goes to those who began"
        assert set(asks[instance]) - set(have) <= set(lack[:number])
    served = [asks[instance][0] for instance in lack]
    assert len(set(served)) == len(served), "nobody sends the whole state twice"


def joined_by(*names: str) -> Driver:
    """Generation 2 is being prepared: a and b hold the state, these lack it."""
    driver = Driver()
    driver.train(A, B)
    for name in names:
        driver.node(name, base=False)
        driver.worker(name)
    driver.want(A, B, *names)
    for base in (A, B):
        driver.blanks(base)
    driver.check_in(A, B)
    assert driver.session.job.number == 2
    assert driver.session.job.phase is Phase.PREPARING
    return driver


def test_a_large_state_may_take_the_time_that_it_takes() -> None:
    """Asking for more nodes must not end a job: at the bound for small ones everybody would be restarted."""
    driver = joined_by(C)
    driver.prepare(A, B)
    driver.do("worker_fetching", C, Fetching(generation=2, received=10**9, size=GIGABYTES))
    driver.now += driver.options.clocks.formation_limit + 1
    driver.do("tick")
    assert driver.session.job.phase is Phase.PREPARING
    driver.prepare(C)
    assert driver.session.job.phase is Phase.FORMING


def test_a_joiner_that_is_too_slow_stays_out_and_nobody_else_is_restarted() -> None:
    driver = joined_by(C)
    driver.prepare(A, B)
    driver.do("worker_fetching", C, Fetching(generation=2, received=10**6, size=GIGABYTES))
    driver.now += driver.options.clocks.formation_limit + GIGABYTES / LEAST_SPEED + 1
    orders = driver.do("tick")
    assert restarted(orders) <= {C}
    assert driver.session.job.phase is Phase.PARKED
    for base in (A, B):
        orders += driver.blanks(base)
    driver.now += 5.0
    orders += driver.do("tick")
    assert set(forms(orders)) == {A, B}


def test_who_waits_for_a_slow_one_in_front_is_not_the_one_that_stays_out() -> None:
    driver = Driver(workers=1)
    driver.train(A)
    for name in (B, C, D):
        driver.node(name, base=False)
        driver.worker(name)
    driver.want(A, B, C, D)
    driver.blanks(A)
    driver.check_in(A)
    driver.prepare(A, B)
    for name in (C, D):
        driver.do("worker_fetching", name, Fetching(generation=2, received=10**6, size=GIGABYTES))
    driver.now += driver.options.clocks.formation_limit + GIGABYTES / LEAST_SPEED + 1
    driver.do("tick")
    assert C not in driver.session.job.roster.members
    assert D in driver.session.job.roster.standing


@pytest.mark.parametrize(("copy_of_b", "lacks"), [(COPY, False), (OLDER, True), (None, True)])
def test_a_process_whose_node_has_the_state_loads_it_at_home(copy_of_b: SafeCopy | None, lacks: bool) -> None:
    """After a restart of all, each fetched from one node what lay in its own memory."""
    driver = Driver()
    driver.train(A, B)
    driver.check_in(A, B)
    come_back(driver, A, B)
    orders = [*driver.worker(A, pid=20, safe=COPY), *driver.worker(B, pid=21, safe=copy_of_b)]
    by_name = forms(orders)
    assert (by_name[A].safe, by_name[A].fetch) == (COPY.name, False)
    assert (by_name[B].safe, by_name[B].fetch) == (None if lacks else COPY.name, lacks)
