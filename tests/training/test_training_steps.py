"""What a step costs beside its own work."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.engine.dealing import assign_key_numbers, server_of
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.membership.step import STEPS_PER_MEASUREMENT, StepGuard
from hypothesis import given
from hypothesis import strategies as st


class Engine:
    release = "zeros"

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def wait(self, gradient: Gradient) -> None:
        gradient.wait_to_read()


class Gradient:
    def __init__(self) -> None:
        self.waited_for = False

    def wait_to_read(self) -> None:
        self.waited_for = True


def measured(first: int) -> list[int]:
    """The steps at which a worker that began with step `first` waits for its own gradients before it pushes them."""
    guard = StepGuard(Engine(), lambda message: None)  # type: ignore[arg-type]
    guard.formed(1, Position(epoch=0, offset=0, step=first))
    steps = []
    for step in range(first, first + 5 * STEPS_PER_MEASUREMENT):
        gradient = Gradient()

        def push(gradient: Gradient = gradient, step: int = step) -> None:
            if gradient.waited_for:
                steps.append(step)

        assert guard.run(Position(epoch=0, offset=0, step=step + 1), push, [gradient], lambda: None)
    return steps


def test_workers_measure_themselves_at_the_same_steps_whenever_they_joined() -> None:
    """Each at steps of its own, and of many workers one would keep all others waiting at nearly every step."""
    first, late = measured(0), measured(STEPS_PER_MEASUREMENT + 7)
    assert all(after - before == STEPS_PER_MEASUREMENT for before, after in pairwise(first[1:]))
    assert len(first) == 5
    assert set(first[2:]) < set(late)
    assert len(late) - len(set(first) & set(late)) <= 3, "its first, and those that the other did not come to"


@given(st.lists(st.integers(1, 4_000_000), min_size=1, max_size=300), st.integers(1, 64))
def test_no_server_has_much_more_to_add_up_than_the_others(sizes: list[int], servers: int) -> None:
    """All wait for the one that has most. No greedy deal is worse than the mean and the largest key."""
    numbers = assign_key_numbers(sizes, servers)
    assert len(set(numbers)) == len(sizes)
    loads = [0] * servers
    for number, size in zip(numbers, sizes, strict=True):
        assert number >= 0
        loads[server_of(number, servers)] += size
    assert max(loads) <= sum(sizes) / servers + max(sizes)
    assert max(loads) - min(loads) <= max(sizes)
