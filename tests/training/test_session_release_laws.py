"""How survivors are freed, by laws: whatever they say in whatever order, each is freed once, with zeros for exactly
those that owe them, and the step that stands is the furthest that anybody has applied.
"""

from __future__ import annotations

from dyntrain.training.protocol.messages import Abort, Position, Pump, StepStatus
from dyntrain.training.session.generation.release import Release
from dyntrain.training.session.orders import Order, ToWorker
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("i-a", "i-b", "i-c", "i-d")
PHASES = st.sampled_from(["wait", "out", "held", "failed"])


def at(step: int, epoch: int = 0) -> Position:
    return Position(epoch=epoch, offset=10 * step, step=step)


def said(phase: str, position: Position, exchanges: int = 0) -> StepStatus:
    return StepStatus(generation=1, phase=phase, position=position, answered=0, exchanges=exchanges)  # type: ignore[arg-type]


def asked(orders: list[Order]) -> set[str]:
    return {order.instance_id for order in orders if isinstance(order, ToWorker) and isinstance(order.message, Abort)}


def pumps(orders: list[Order]) -> list[tuple[str, int]]:
    found = [(order.instance_id, order.message) for order in orders if isinstance(order, ToWorker)]
    return [(name, message.count) for name, message in found if isinstance(message, Pump)]


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(PHASES, st.integers(1, 2)), min_size=1), st.integers(1, 3))
def test_when_all_have_answered_one_who_waits_is_told_how_many_owe_or_the_furthest_step_stands(
    where: dict[str, tuple[str, int]], lost: int
) -> None:
    release = Release(1, len(where) + lost, 0.0)
    assert asked(release.ask(where)) == set(where)
    orders: list[Order] = []
    for number, (name, (phase, step)) in enumerate(where.items()):
        assert (orders, release.verdict, release.pumping) == ([], None, None), f"{len(where) - number} say nothing yet"
        orders = release.said(name, said(phase, at(step), exchanges=step), where)
    blocked = {name: step for name, (phase, step) in where.items() if phase == "wait"}
    if blocked:
        furthest = sorted(name for name, step in blocked.items() if step == max(blocked.values()))
        assert (pumps(orders), release.verdict) == ([(furthest[0], len(where) + lost - len(furthest))], None)
        assert release.behind == frozenset()
        return
    stands = max(step for _, step in where.values())
    assert (orders, release.verdict) == ([], at(stands))
    assert release.exchanges == min(step for _, step in where.values()), "that all have ended"
    assert release.behind == {name for name, (phase, step) in where.items() if phase == "failed" and step < stands}


@given(st.permutations(NAMES), st.sampled_from(NAMES))
def test_one_pumps_at_a_time_and_its_word_alone_has_all_asked_anew(order: list[str], pumped: str) -> None:
    """Twice as many zeros would end the next step, too, without anybody's gradients."""
    release = Release(1, 5, 0.0)
    release.ask(NAMES)
    told = [pumps(release.said(name, said("wait", at(1)), NAMES)) for name in order]
    assert told == [[], [], [], [("i-a", 1)]]
    assert release.said(order[0], said("wait", at(1)), NAMES) == [], "said again, while i-a pumps"
    again = release.pumped(pumped, NAMES)
    assert asked(again) == (set(NAMES) if pumped == "i-a" else set())
    if again:
        assert (release.statuses, release.pumping) == ({}, None), "what was said before is old"


def test_nobody_owes_less_than_one() -> None:
    """All wait, and nobody is known to be lost: a worker that is told to push none would wait for ever."""
    release = Release(1, 2, 0.0)
    release.said("i-a", said("wait", at(1)), NAMES[:2])
    assert pumps(release.said("i-b", said("wait", at(1)), NAMES[:2])) == [("i-a", 1)]


def test_a_loss_before_the_verdict_has_all_asked_anew_and_one_after_it_changes_nothing() -> None:
    release = Release(1, 3, 0.0)
    release.said("i-a", said("held", at(1)), NAMES[:2])
    assert asked(release.lost(NAMES[:1])) == {"i-a"}
    assert release.verdict is None
    release.said("i-a", said("held", at(1)), NAMES[:1])
    assert release.verdict == at(1)
    assert release.lost(()) == []
    assert release.verdict == at(1), "some may have heard it"


def test_at_an_epochs_end_who_has_ended_it_is_further_than_who_has_not() -> None:
    """The same step, told as the end of one epoch and as the start of the next."""
    release = Release(1, 3, 0.0)
    for name, epoch in (("i-a", 1), ("i-b", 0)):
        release.said(name, said("held", at(4, epoch)), NAMES[:2])
    assert release.verdict == at(4, 1)
