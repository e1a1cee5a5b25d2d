"""Words that a worker hears twice or too late: each order reaches its training thread once, or the next one would be
taken for an answer to it.
"""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.messages import (
    Abort,
    CheckIn,
    Form,
    Formed,
    Go,
    Leave,
    Position,
    Prepared,
    Proceed,
    Pump,
    StepVerdict,
)
from dyntrain.training.worker.membership.dialogue import Dialogue
from pydantic import SecretStr

AT = Position(epoch=1, offset=0, step=2)


def form(generation: int) -> Form:
    return Form(
        generation=generation,
        number=0,
        workers=1,
        environment={},
        position=AT,
        source="i-0000000a",
        transfer_token=SecretStr("t"),
    )


@pytest.fixture
def training() -> Dialogue:
    """Of a worker that trains in generation 2."""
    dialogue = Dialogue()
    assert dialogue.accept(form(2))
    dialogue.sent(Prepared(generation=2))
    assert dialogue.accept(Go(generation=2))
    dialogue.sent(Formed(generation=2, digest="5f"))
    assert dialogue.accept(Proceed(generation=2, position=AT))
    return dialogue


def test_an_order_to_form_is_taken_once_and_an_earlier_one_never(training: Dialogue) -> None:
    """Taken twice, the second would be found where the word to go is awaited, and the worker would leave the group that
    it is in.
    """
    assert [training.accept(form(generation)) for generation in (2, 1, 3, 3)] == [False, False, True, False]


def test_a_word_to_go_is_taken_once(training: Dialogue) -> None:
    training.accept(form(3))
    assert [training.accept(Go(generation=generation)) for generation in (2, 3, 3)] == [False, True, False]


def test_a_word_to_step_on_answers_what_was_said_and_nothing_else(training: Dialogue) -> None:
    assert not training.accept(Proceed(generation=2, position=AT)), "nothing was said since"
    later = Position(epoch=2, offset=0, step=4)
    training.sent(CheckIn(generation=2, position=later, pid=1))
    assert [training.accept(Proceed(generation=2, position=position)) for position in (AT, later, later)] == [
        False,
        True,
        False,
    ]


def test_a_verdict_is_taken_once_and_what_is_of_another_generation_never(training: Dialogue) -> None:
    assert [training.accept(Abort(generation=generation)) for generation in (1, 2, 2)] == [False, True, True], (
        "it asks for the status each time"
    )
    assert [training.accept(Pump(generation=generation)) for generation in (1, 2)] == [False, True]
    assert [training.accept(StepVerdict(generation=generation, position=AT)) for generation in (1, 2, 2)] == [
        False,
        True,
        False,
    ]


def test_the_order_to_leave_is_taken_once(training: Dialogue) -> None:
    assert [training.accept(Leave(generation=2, reason="job finished")) for _ in range(2)] == [True, False]
