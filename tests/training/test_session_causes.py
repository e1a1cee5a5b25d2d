"""What is announced as the cause of a change: the words of the target, as far as they are of those that come or go."""

from __future__ import annotations

from dyntrain.controller.contract.messages import Target
from dyntrain.training.events import Forming
from dyntrain.training.session.generation.generation import Cause, describe_cause
from dyntrain.training.session.orders import Order
from session_driver import A, B, C, D, Driver, announced


def want(driver: Driver, *names: str, **causes: str) -> list[Order]:
    driver.revision += 1
    by_node = {{"a": A, "b": B, "c": C, "d": D}[name]: word for name, word in causes.items()}
    return driver.do("new_target", Target.of(driver.revision, names).model_copy(update={"causes": by_node}))


def cause(orders: list[Order]) -> str:
    (forming,) = announced(orders, Forming)
    return forming.cause


def test_a_change_is_announced_with_what_the_target_says_of_those_that_change(driver: Driver) -> None:
    for name in (C, D):
        driver.node(name, base=False)
    want(driver, A, B, C, c="launched by workers")
    want(driver, A, B, C, D, d="tagged")
    driver.worker(C)
    driver.blanks(A)
    assert cause(driver.check_in(A, B)) == "launched by workers", "the other one is not there yet"
    driver.form(A, B, C)
    driver.worker(D)
    driver.blanks(A)
    assert cause(driver.check_in(A, B, C, epoch=2)) == "tagged"


def test_several_are_counted_by_what_is_said_of_them() -> None:
    causes = {A: "launched by workers", B: "launched by workers", C: "untagged"}
    assert describe_cause(Cause.CHANGE, [A, B, C], causes) == "2 launched by workers, 1 untagged"
    assert describe_cause(Cause.CHANGE, [D], causes) == "the target wants other members"
    assert describe_cause(Cause.LOSS, [A], causes) == "a worker was lost"
