"""Workers whose weights have come apart: found at the next boundary, told by name, and undone."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training import events
from dyntrain.training.protocol.checks import limit_checks
from dyntrain.training.protocol.messages import MAX_BYTES, CheckIn, Formed, Position, SafeCopy
from dyntrain.training.session.generation.divergence import describe_difference
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.job.trouble import DIVERGENCES
from session_driver import A, B, Driver, announced, come_back, forms, restarted

HERE = Position(epoch=1, offset=0, step=2)


def boundary(driver: Driver, ours: str, theirs: str, at: Position = HERE) -> list[Any]:
    orders = []
    for name, checksum in ((A, ours), (B, theirs)):
        checks = (("dense0_weight", "same"), ("dense0_bias", checksum))
        check_in = CheckIn(generation=driver.session.job.number, position=at, pid=int(name[-1], 16), checks=checks)
        orders += driver.do("check_in", name, check_in)
    return orders


def begin_again(driver: Driver, pid: int, safe: SafeCopy | None = None) -> list[Any]:
    """Fresh processes on both nodes, after the pause that follows failures."""
    driver.now += 5
    before = len(driver.orders)
    for name in (A, B):
        driver.blanks(name)
        driver.worker(name, pid=pid + (name == B), safe=safe)
    driver.do("tick")
    return driver.orders[before:]


def test_divergence_is_told_by_the_parameters_name_and_goes_back_to_what_all_had_alike(driver: Driver) -> None:
    assert not restarted(boundary(driver, "same", "same"))
    orders = boundary(driver, "one", "other", Position(epoch=2, offset=0, step=4))
    assert restarted(orders) == {A, B}
    (restart,) = announced(orders, events.Restart)
    assert f"at step 4: dense0_bias is one on {A}, another on {B}" in restart.reason
    kept = SafeCopy(name="1-2", generation=1, position=HERE)
    assert forms(begin_again(driver, 50, kept))[A].position == HERE, "the boundary before, at which they were equal"


def test_divergence_that_comes_again_fails_the_job(driver: Driver) -> None:
    for time in range(DIVERGENCES):
        assert restarted(boundary(driver, "one", "other")) == {A, B}
        begin_again(driver, 50 + 2 * time)
        driver.form(A, B)
    boundary(driver, "one", "other")
    assert driver.session.job.outcome == "failed"
    assert "dense0_bias" in driver.session.job.failure


def test_what_a_formation_kept_of_differing_states_is_not_gone_on_from(driver: Driver) -> None:
    """Only a few values are looked at in a boundary; a formation looks at all of them."""
    driver.node("i-0000000c", base=False)
    driver.worker("i-0000000c")
    driver.want(A, B, "i-0000000c")
    driver.blanks(A)
    boundary(driver, "same", "same")
    number = driver.session.job.number
    assert number == 2
    driver.prepare(A, B, "i-0000000c")
    restarts: list[events.Restart] = []
    for name, digest in ((A, "one"), (B, "other"), ("i-0000000c", "one")):
        checks = (("dense0_weight", "same"), ("dense0_bias", digest))
        formed = Formed(generation=number, digest=digest, checks=checks)
        restarts += announced(driver.do("worker_formed", name, formed), events.Restart)
    assert f"dense0_bias is one on {A} and i-0000000c, another on {B}" in restarts[0].reason
    assert driver.session.job.phase is Phase.WAITING
    assert not driver.session.job.lineage.contains(SafeCopy(name="2-2", generation=number, position=HERE))
    come_back(driver)
    assert not driver.session.job.lineage.contains(SafeCopy(name="2-2", generation=number, position=HERE)), "nor later"


@pytest.mark.parametrize("arrays", [1, 999, 1000, 1001, 40_000])
def test_of_a_model_of_many_arrays_the_check_fits_a_message_and_a_difference_has_a_name(arrays: int) -> None:
    name = "efficientnet0_" + "block12_" * 20
    here = [(f"{name}{i}_weight\u00e9", f"{i:016x}") for i in range(arrays)]
    there = [*here[:-1], (here[-1][0], "another")]
    check_in = CheckIn(generation=1, position=HERE, pid=1, checks=limit_checks(here))
    assert len(check_in.model_dump_json().encode()) < MAX_BYTES
    sentence = describe_difference({A: limit_checks(here), B: limit_checks(there), "i-0000000c": limit_checks(here)})
    assert sentence
    assert f"{arrays - 1}_weight" in sentence
    assert "another on " + B in sentence
    assert describe_difference({A: limit_checks(here), B: limit_checks(here)}) is None


def test_no_difference_is_seen_where_somebody_says_nothing() -> None:
    assert describe_difference({A: (("w", "1"),), B: ()}) is None
