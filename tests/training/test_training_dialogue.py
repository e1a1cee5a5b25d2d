"""Where a worker says that it is when its line is made anew: a coordinator that lost the connection, or is another
process, goes on from that alone. Wrong, a worker that is inside ps-lite is ordered to form, or one that is free is
waited for.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.training.protocol.messages import (
    Abort,
    Broken,
    CheckIn,
    Form,
    Formed,
    Go,
    Leave,
    LoopOver,
    Position,
    Prepared,
    Proceed,
    Refused,
    ScriptEnded,
    StepVerdict,
)
from dyntrain.training.worker.membership.dialogue import Dialogue
from pydantic import SecretStr

AT = Position(epoch=1, offset=0, step=2)
LATER = Position(epoch=2, offset=0, step=4)


def form(generation: int) -> Form:
    fields: dict[str, Any] = {"number": 0, "workers": 1, "environment": {}, "source": "i-0000000a"}
    return Form(generation=generation, position=AT, transfer_token=SecretStr("t"), **fields)


def over(loop: int = 1, holds: bool = True) -> LoopOver:
    return LoopOver(generation=2, loop=loop, position=LATER, holds=holds)


FORMATION = [
    form(2),
    Prepared(generation=2),
    Go(generation=2),
    Formed(generation=2, digest="5f"),
    Proceed(generation=2, position=AT),
]
STAGES = ["prepares", "prepares", "creates", "formed", "trains"]


def after(*words: Any) -> Dialogue:
    """`words` as they were heard and said."""
    dialogue = Dialogue()
    for word in words:
        if type(word) in (Prepared, Formed, CheckIn, Broken, ScriptEnded):
            dialogue.sent(word)
        else:
            assert dialogue.accept(word), word
    return dialogue


def check_in(position: Position = LATER, generation: int = 2) -> CheckIn:
    return CheckIn(generation=generation, position=position, pid=1)


@pytest.mark.parametrize("count", range(6))
def test_on_the_way_into_a_generation(count: int) -> None:
    dialogue = after(*FORMATION[:count])
    assert dialogue.stage == (STAGES[count - 1] if count else "stands")
    assert dialogue.hello_fields() == {
        "generation": 2 if count else None,
        "stage": dialogue.stage,
        "position": AT if count == 5 else None,
        "passed": 0,
    }
    waiting = {2: Prepared, 4: Formed}.get(count)
    assert type(dialogue.pending) is (waiting or type(None)), "what is said again is what was not answered"


@pytest.mark.parametrize(
    ("words", "stage", "position", "pending"),
    [
        ([check_in()], "waits", AT, CheckIn),
        ([check_in(), Proceed(generation=2, position=LATER)], "trains", LATER, None),
        ([Abort(generation=2)], "aborted", AT, None),
        ([check_in(), Abort(generation=2)], "aborted", AT, CheckIn),
        ([Broken(generation=2, reason="x")], "trains", AT, Broken),
        ([Broken(generation=2, reason="x"), Abort(generation=2)], "aborted", AT, None),
        ([Abort(generation=2), StepVerdict(generation=2, position=LATER)], "free", LATER, None),
        ([Abort(generation=2), StepVerdict(generation=2, position=LATER), form(3)], "prepares", None, None),
        ([check_in(), form(3)], "prepares", None, None),
        ([check_in(), Leave(generation=2, reason="x")], "trains", AT, None),
    ],
)
def test_in_a_generation_and_on_the_way_out_of_it(
    words: list[Any], stage: str, position: Position | None, pending: type | None
) -> None:
    dialogue = after(*FORMATION, *words)
    assert (dialogue.stage, dialogue.hello_fields()["position"]) == (stage, position)
    assert type(dialogue.pending) is (pending or type(None))


@pytest.mark.parametrize("before", [[], [check_in()], [Abort(generation=2)]], ids=["trains", "waits", "aborted"])
@pytest.mark.parametrize("holds", [True, False])
def test_between_two_loops_who_holds_the_state_is_free_with_it_and_who_does_not_stands_by(
    before: list[Any], holds: bool
) -> None:
    dialogue = after(*FORMATION, *before, over(holds=holds))
    assert dialogue.hello_fields() == {
        "generation": 2 if holds else None,
        "stage": "free" if holds else "stands",
        "position": LATER if holds else None,
        "passed": 1,
    }
    assert dialogue.pending is None
    assert [dialogue.accept(over(loop=loop, holds=holds)) for loop in (0 + 1, 2, 2)] == [False, True, False]
    dialogue.sent(ScriptEnded(generation=2 if holds else None))
    assert isinstance(dialogue.pending, ScriptEnded)
    assert dialogue.accept(form(3))
    assert (dialogue.stage, dialogue.pending) == ("prepares", None)


def test_what_was_said_of_an_earlier_generation_is_not_said_again() -> None:
    """Nobody will answer it, and it would stand in the way of what somebody will."""
    dialogue = after(*FORMATION, form(3), Prepared(generation=3))
    dialogue.sent(check_in())
    assert dialogue.pending == Prepared(generation=3)


@pytest.mark.parametrize("generation", [1, 2, 4])
def test_a_word_for_another_generation_is_no_word_to_go_or_to_step(generation: int) -> None:
    dialogue = after(form(3), Prepared(generation=3))
    assert not dialogue.accept(Go(generation=generation))
    assert dialogue.stage == "prepares"
    assert dialogue.accept(Go(generation=3))
    dialogue.sent(Formed(generation=3, digest="5f"))
    assert not dialogue.accept(Proceed(generation=generation, position=AT))
    assert dialogue.stage == "formed"
    assert dialogue.accept(Proceed(generation=3, position=AT))


def test_what_is_prepared_is_not_answered_by_a_word_to_step() -> None:
    dialogue = after(form(2), Prepared(generation=2))
    assert not dialogue.accept(Proceed(generation=2, position=AT))


@pytest.mark.parametrize("offset", [0, 4])
def test_the_word_to_step_on_is_of_the_very_position_that_was_said(offset: int) -> None:
    dialogue = after(*FORMATION, check_in(LATER.model_copy(update={"offset": 4})))
    assert dialogue.accept(Proceed(generation=2, position=LATER.model_copy(update={"offset": offset}))) == (offset == 4)


def test_a_verdict_that_comes_twice_does_not_move_who_is_free() -> None:
    dialogue = after(*FORMATION, Abort(generation=2), StepVerdict(generation=2, position=AT))
    assert not dialogue.accept(StepVerdict(generation=2, position=LATER))
    assert dialogue.hello_fields()["position"] == AT


def test_what_is_none_of_these_is_for_whoever_reads_it() -> None:
    assert Dialogue().accept(Refused(reason="x"))
