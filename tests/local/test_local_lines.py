"""What a child says is waited for within bounds."""

from __future__ import annotations

import os

import pytest
from dyntrain.controller.local.lines import read_line
from dyntrain.controller.local.pace import Deadline, Pace


def test_a_child_that_says_half_a_line_is_not_waited_for_for_ever() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output, os.fdopen(writing, "wb", buffering=0) as child:
        child.write(b"one\nhalf")
        first, rest = read_line(output.fileno(), Deadline(5.0))
        assert first == b"one"
        with pytest.raises(TimeoutError):
            read_line(output.fileno(), Deadline(0.01, Pace(lambda: 0.0)), rest)
        child.close()
        with pytest.raises(EOFError):
            read_line(output.fileno(), Deadline(5.0), rest)
