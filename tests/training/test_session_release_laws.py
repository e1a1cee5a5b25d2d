"""How survivors are freed, by laws: whatever they say in whatever order, first those outside the step fill it, then all
push what the lost owe, and the step that stands is the furthest that anybody has applied.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus
from dyntrain.training.session.generation.release import Release
from dyntrain.training.session.orders import Order, ToWorker
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("i-a", "i-b", "i-c", "i-d")
PHASES = st.sampled_from(["wait", "out", "held", "failed"])


def at(step: int, epoch: int = 0) -> Position:
    return Position(epoch=epoch, offset=10 * step, step=step)


def status_of(phase: str, position: Position, exchanges: int = 0, windows: int = 1) -> StepStatus:
    return StepStatus(
        generation=1,
        phase=phase,  # type: ignore[arg-type]
        position=position,
        answered=0,
        exchanges=exchanges,
        keys=(0, 1, 2),
        windows=windows,
    )


def aborted(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Abort)}


def pumps(orders: list[Order]) -> dict[str, Pump]:
    messages = [(order.instance_id, order.message) for order in orders if isinstance(order, ToWorker)]
    return {name: message for name, message in messages if isinstance(message, Pump)}


def pumped(release: Release, name: str, survivors: Collection[str], number: int | None = None) -> list[Order]:
    number = release.number if number is None else number
    return release.record_pumped(name, Pumped(generation=1, number=number, rounds=0, seconds=0.1), survivors)


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(PHASES, st.integers(1, 2)), min_size=1), st.integers(1, 3))
def test_when_all_have_answered_those_outside_fill_or_all_push_or_the_furthest_step_stands(
    where: dict[str, tuple[str, int]], lost: int
) -> None:
    release = Release(1, len(where) + lost, 0.0)
    assert aborted(release.ask_status(where)) == set(where)
    orders: list[Order] = []
    for number, (name, (phase, step)) in enumerate(where.items()):
        assert (orders, release.verdict, release.pumping) == ([], None, set()), f"{len(where) - number} say nothing yet"
        orders = release.record_status(name, status_of(phase, at(step), exchanges=step), where)
    furthest = max(step for _, step in where.values())
    blocked = {name: step for name, (phase, step) in where.items() if phase == "wait"}
    if not blocked:
        assert (orders, release.verdict) == ([], at(furthest))
        assert release.finished_exchanges == min(step for _, step in where.values()), "that all have ended"
        assert release.workers_behind == {
            name for name, (phase, step) in where.items() if phase == "failed" and step < furthest
        }
        return
    assert (release.verdict, release.workers_behind) == (None, frozenset())
    if min(blocked.values()) < furthest:
        assert aborted(orders) == set(where), "its answers are on their way"
        return
    outside = set(where) - set(blocked)
    pump_of = pumps(orders)
    assert set(pump_of) == (outside or set(where))
    assert {pump.fills for pump in pump_of.values()} == {bool(outside)}
    assert {(pump.count, pump.workers) for pump in pump_of.values()} == {(lost, len(where) + lost)}
    assert sorted((pump.share, pump.shares) for pump in pump_of.values()) == [
        (n, len(pump_of)) for n in range(len(pump_of))
    ]


@given(st.permutations(NAMES), st.integers(1, 4), st.integers(1, 3))
def test_window_after_window_is_filled_by_those_outside_and_then_mended_by_all(
    order: list[str], outside: int, windows: int
) -> None:
    """A zero for a lost worker that is pushed before all of the others' are there may be one too many."""
    release = Release(1, 5, 0.0)
    release.ask_status(NAMES)
    out = sorted(order[:outside]) if outside < len(NAMES) else []
    orders: list[Order] = []
    for name in order:
        orders = release.record_status(name, status_of("out" if name in out else "wait", at(1), windows=windows), NAMES)
    for window in range(windows) if out else [None]:
        for pushers, fills in ((out, True), (sorted(NAMES), False)):
            if not pushers:
                continue
            assert {name: (pump.fills, pump.window) for name, pump in pumps(orders).items()} == dict.fromkeys(
                pushers, (fills, window)
            )
            assert release.record_status(order[0], status_of("out", at(1)), NAMES) == [], "said again, while they push"
            for name in pushers:
                assert orders != []
                assert pumped(release, name, NAMES, number=release.number - 1) == [], "about an earlier order"
            for name in pushers[:-1]:
                assert pumped(release, name, NAMES) == pumped(release, name, NAMES) == [], "all are waited for"
            orders = pumped(release, pushers[-1], NAMES)
    assert aborted(orders) == set(NAMES)
    assert (release.statuses, release.pumping) == ({}, set()), "what was said before is old"


def test_nobody_owes_less_than_one() -> None:
    """All wait, and nobody is known to be lost: workers that are told to push none would wait for ever."""
    release = Release(1, 2, 0.0)
    release.record_status("i-a", status_of("wait", at(1)), NAMES[:2])
    assert {
        pump.count for pump in pumps(release.record_status("i-b", status_of("wait", at(1)), NAMES[:2])).values()
    } == {1}


def test_a_loss_before_the_verdict_has_all_asked_anew_and_one_after_it_changes_nothing() -> None:
    release = Release(1, 3, 0.0)
    release.record_status("i-a", status_of("held", at(1)), NAMES[:2])
    assert aborted(release.ask_after_loss(NAMES[:1])) == {"i-a"}
    assert release.verdict is None
    release.record_status("i-a", status_of("held", at(1)), NAMES[:1])
    assert release.verdict == at(1)
    assert release.ask_after_loss(()) == []
    assert release.verdict == at(1), "some may have heard it"


def test_at_an_epochs_end_who_has_ended_it_is_further_than_who_has_not() -> None:
    """The same step, told as the end of one epoch and as the start of the next."""
    release = Release(1, 3, 0.0)
    for name, epoch in (("i-a", 1), ("i-b", 0)):
        release.record_status(name, status_of("held", at(4, epoch)), NAMES[:2])
    assert release.verdict == at(4, 1)
