"""Questions to S3 that children ask.

What would break for a user: a job that waits for ever, or fails, since a process that was to list its data was killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dyntrain.training.feed.errands import ChildRequests
from dyntrain.training.feed.places import ChannelError
from dyntrain.training.feed.pump import MOST_DEATHS
from waiting import wait_for


class Desk:
    """Where answers and problems come to."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.answers: list[Any] = []
        self.errands = ChildRequests(self.problems.append)

    def send(self, ask: Any) -> None:
        self.errands.send("train", ask, self.answers.append)
        wait_for(self._over, 30, "an answer")

    def _over(self) -> bool:
        for pipe in self.errands.pipes:
            self.errands.read_answer(pipe)
        return not self.errands.pipes


@pytest.fixture
def desk() -> Iterator[Desk]:
    new_desk = Desk()
    yield new_desk
    assert new_desk.errands.child_pids == set()


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_child_is_told_comes_as_json_has_it(desk: Desk) -> None:
    desk.send(lambda: [("a", 1)] * 100_000)
    assert desk.answers == [[["a", 1]] * 100_000], "also what no pipe holds at once"


def test_a_child_that_is_killed_is_sent_again(desk: Desk, tmp_path: Path) -> None:
    def ask() -> str:
        (tmp_path / str(os.getpid())).touch()
        if len(list(tmp_path.iterdir())) <= MOST_DEATHS:
            killed()
        return "there"

    desk.send(ask)
    assert desk.answers == ["there"]
    assert desk.problems == []


def test_one_that_is_killed_each_time_is_given_up_with_its_channel(desk: Desk) -> None:
    desk.send(killed)
    assert desk.problems == [f"channel train: the child process for requests to S3 ended {MOST_DEATHS + 1} times"]
    assert desk.answers == []


def test_a_problem_is_told_with_its_channel(desk: Desk) -> None:
    def ask() -> None:
        raise ChannelError("s3://data/x: it is not there")

    desk.send(ask)
    assert desk.problems == ["channel train: s3://data/x: it is not there"]
