"""What happens to the members of a tried job.

What would break for a user: a plan that is printed and cannot be given again, or one that tries less than the script's
steps have room for.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from dyntrain.training.trial.members import all_ready, hosts_of
from dyntrain.training.trial.plan import WORKERS_AFTER_JOINS, WORKERS_AFTER_LEAVE, make_plan, parse
from dyntrain.training.trial_files import Kill, Order, SavedStep
from hypothesis import given
from hypothesis import strategies as st


def loops_of(lengths: list[int]) -> list[list[int]]:
    """Their steps, which are counted over all."""
    ends = accumulate(lengths)
    return [list(range(end - length + 1, end + 1)) for end, length in zip(ends, lengths, strict=True)]


LOOPS = st.lists(st.integers(1, 30), min_size=1, max_size=4).map(loops_of)


@given(LOOPS, st.integers(0, 10_000))
def test_a_plan_has_room_between_its_changes_and_can_be_given_again(loops: list[list[int]], seed: int) -> None:
    plan = make_plan(loops, seed)
    assert len(set(plan.steps)) == len(plan.steps), "one thing at each step"
    assert all(1 <= step < loops[-1][-1] for step in plan.steps), "after the last step nothing can be seen"
    assert {loop[-1] for loop in loops[:-1]} <= set(plan.steps), "the number changes between two loops"
    assert make_plan(loops, seed) == plan
    if plan.steps:
        assert parse(str(plan)) == plan


@given(st.integers(4, 40), st.integers(0, 10_000))
def test_of_four_steps_or_more_workers_join_one_is_killed_and_one_leaves(steps: int, seed: int) -> None:
    plan = make_plan(loops_of([steps]), seed)
    assert [each.workers for each in plan.changes] == [WORKERS_AFTER_JOINS, WORKERS_AFTER_LEAVE]
    (kill,) = plan.kills
    assert plan.changes[0].step < kill.step < plan.changes[1].step


@given(st.integers(4, 6), st.integers(0, 10_000))
def test_of_epochs_workers_join_within_one_and_where_one_begins_and_who_was_killed_is_back_within_one(
    long: int, seed: int
) -> None:
    """What a script does where an epoch begins, or ends, a worker that joins within has done otherwise, or not."""
    epochs = set(range(long, 13, long))
    plan = make_plan(loops_of([12]), seed, epochs)
    assert [each.workers for each in plan.changes] == [WORKERS_AFTER_LEAVE, WORKERS_AFTER_JOINS, WORKERS_AFTER_LEAVE]
    within, begins, _ = (each.step for each in plan.changes)
    assert within not in epochs
    assert begins in epochs
    (kill,) = plan.kills
    assert not {kill.step, kill.step + 1} & epochs
    assert within < begins < kill.step
    assert parse(str(plan)) == plan


@given(LOOPS, st.sets(st.integers(1, 120)), st.integers(0, 10_000))
def test_wherever_epochs_end_one_thing_happens_at_a_step(loops: list[list[int]], epochs: set[int], seed: int) -> None:
    plan = make_plan(loops, seed, epochs)
    assert len(set(plan.steps)) == len(plan.steps)
    assert all(1 <= step < loops[-1][-1] for step in plan.steps)
    assert list(plan.changes) == sorted(plan.changes, key=lambda each: each.step)


@pytest.mark.parametrize("text", ["3:3", "3=0", "3=9", "0=2", "3=3 3=kill1", "6=kill", "3=3;6=2", ""])
def test_a_plan_that_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="--plan"):
        parse(text)


def test_a_plan_is_read_in_any_order() -> None:
    plan = parse("9=2, 3=3 6=kill1")
    assert str(plan) == "3=3 6=kill1-before 9=2"
    assert plan.steps == (3, 6, 9)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_hosts_come_and_go_but_for_the_base_host_and_no_address_comes_back(numbers: list[int]) -> None:
    hosts: tuple[str, ...] = ("127.0.0.1",)
    joined, seen = 0, {*hosts}
    for number in numbers:
        after = hosts_of(hosts, number, joined)
        assert (len(after), after[0]) == (number, "127.0.0.1")
        assert not (set(after) - set(hosts)) & seen, "its worker may still be leaving"
        joined += len(set(after) - set(hosts))
        hosts, seen = after, seen | set(after)


def test_a_killed_worker_is_waited_for_until_its_next_process_stands_by() -> None:
    """Else a step is tried with fewer workers on a slow machine than on a fast one."""
    ready, lost = {"event": "worker_ready", "instance": "i-1"}, {"event": "worker_lost", "instance": "i-1"}
    assert all_ready([ready], ["i-1"], 0)
    assert not all_ready([ready], ["i-1"], 1), "the loss has not been seen yet"
    assert not all_ready([ready, lost], ["i-1"], 1)
    assert all_ready([ready, lost, ready], ["i-1"], 1)
    assert not all_ready([ready], ["i-1", "i-2"], 0)


@given(st.lists(st.integers(0, 10**9), min_size=6, max_size=6))
def test_a_files_name_says_whose_values_are_in_it(numbers: list[int]) -> None:
    at = SavedStep(*numbers)
    assert SavedStep.parse(at.name) == at


def test_an_order_is_read_as_it_was_written(tmp_path) -> None:  # type: ignore[no-untyped-def]
    order = Order(folder=tmp_path / "run", steps=12, held=(3,), kills=(Kill(step=4, rank=1, moment="after"),))
    assert Order.model_validate_json(order.write().read_text()) == order
