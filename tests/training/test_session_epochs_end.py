"""A loss at an epoch's end, where the survivors are in the script's own lines: a validation may take minutes."""

from __future__ import annotations

from dyntrain.training.protocol.messages import Position, StepStatus
from session_driver import A, B, C, Driver, forms, restarted

END = Position(epoch=1, offset=0, step=2)


def lost_at_the_end(*checked_in: str, position: Position = END) -> Driver:
    """C is lost; A and B have it behind them, and have their orders to form."""
    driver = Driver(workers=3)
    driver.train(A, B, C)
    driver.check_in(*checked_in)
    driver.exits(C)
    driver.blanks(A)
    driver.blanks(B)
    for name in (A, B):
        status = StepStatus(generation=1, phase="out", position=position, answered=0)
        orders = driver.do("step_status", name, status)
    assert set(forms(orders)) == {A, B}
    return driver


def test_survivors_that_validate_are_not_taken_for_hung() -> None:
    driver = lost_at_the_end()
    driver.now += driver.options.clocks.boundary_limit - 1
    assert driver.do("tick") == []
    driver.prepare(A)
    driver.now += 2
    assert restarted(driver.do("tick")) == {B}, "as long as at any boundary, and no longer"


def test_who_had_come_to_the_boundary_already_has_nothing_else_to_do() -> None:
    driver = lost_at_the_end(B)
    driver.now += driver.options.clocks.formation_limit + 1
    assert restarted(driver.do("tick")) == {B}


def test_who_had_prepared_for_a_generation_that_was_taken_back_has_nothing_else_to_do() -> None:
    driver = lost_at_the_end()
    driver.prepare(A)
    driver.exits(B)
    assert set(forms(driver.blanks(A))) == {A}
    driver.now += driver.options.clocks.formation_limit + 1
    assert restarted(driver.do("tick")) == {A}


def test_in_mid_epoch_only_a_step_can_keep_a_survivor() -> None:
    driver = lost_at_the_end(position=Position(epoch=0, offset=10, step=1))
    driver.now += driver.options.clocks.formation_limit + 1
    assert restarted(driver.do("tick")) == {A, B}


def test_a_joiner_at_an_epochs_end_has_no_lines_to_run() -> None:
    driver = lost_at_the_end()
    driver.prepare(A, B)
    driver.worker(C, pid=33)
    driver.form(A, B)
    driver.blanks(A)
    driver.blanks(B)
    assert set(forms(driver.check_in(A, B, epoch=2))) == {A, B, C}
    driver.prepare(A, B)
    driver.now += driver.options.clocks.formation_limit + 1
    assert restarted(driver.do("tick")) == {C}
