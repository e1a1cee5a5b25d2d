"""A command in quotes is what it says, or is refused before a machine is rented for exit code 127."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.command_words import command_words
from dyntrain.controller.contract.errors import Misconfigured


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["python3", "train.py"], ["python3", "train.py"]),
        (["python3 train.py --lr 0.1"], ["python3", "train.py", "--lr", "0.1"]),
        (["python3 'my script.py' -x \"a;b\""], ["python3", "my script.py", "-x", "a;b"]),
        (["bash -c 'cd x && python train.py $LR'"], ["bash", "-c", "cd x && python train.py $LR"]),
        (["python3 train.py --lr=0.1"], ["python3", "train.py", "--lr=0.1"]),
        (["my program", "-x"], ["my program", "-x"]),
        (["my program"], ["my program"]),
        (["python3", "-c", "a = 1; print(a)"], ["python3", "-c", "a = 1; print(a)"]),
    ],
)
def test_one_string_is_taken_apart_unless_it_is_a_program(typed: list[str], words: list[str]) -> None:
    assert command_words(typed, lambda name: name == "my program") == tuple(words)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["python3 train.py", "--lr", "0.1"], "remove the quotes"),
        (["python3 'train.py"], "remove the quotes"),
        (["cd x && python3 train.py"], "bash -c"),
        (["python3 train.py>log"], "bash -c"),
        (["python3 train.py --data $DATA"], "bash -c"),
        (["LR=1 python3 train.py"], "bash -c"),
    ],
)
def test_what_only_a_shell_could_run_is_refused_with_what_to_write(typed: list[str], message: str) -> None:
    with pytest.raises(Misconfigured, match=message) as caught:
        command_words(typed, lambda _: False)
    assert len(str(caught.value).split()) <= 30
