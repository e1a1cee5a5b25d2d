"""The traceback of what a job refuses: what would break for a user is a sentence that is lost below frames of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from dyntrain.training.worker.membership.client import CoordinatorLost
from dyntrain.training.worker.refused import Refused, trace_for_people
from dyntrain.training.worker.transfer.fetching import TransferError

JOB = "dyntrain.training.worker.loop.batch_feeder"


def in_module(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return FunctionType(function.__code__, {"__name__": name})


def look(error: BaseException) -> None:
    raise error


def refuse(look: Callable[..., Any], error: BaseException) -> None:
    look(error)


def library(refuse: Callable[..., Any], look: Callable[..., Any], error: BaseException) -> None:
    refuse(look, error)


def lines(error: BaseException, by: str = JOB) -> list[str]:
    """The functions that people see, where it was raised by one of module `by`, below a library of the script's."""
    with pytest.raises(type(error)) as caught:
        in_module("gluon", library)(in_module(by, refuse), in_module(by, look), error)
    return [frame.name for frame in traceback.extract_tb(trace_for_people(caught.value))]


@pytest.mark.parametrize("error", [Refused("no"), ValueError("batch_size: 3"), RuntimeError("twice")])
def test_what_the_job_refuses_shows_the_lines_of_the_script_and_none_of_the_job(error: BaseException) -> None:
    assert lines(error) == ["lines", "library"]


@pytest.mark.parametrize("kind", [CoordinatorLost, TransferError])
@pytest.mark.parametrize("by", [JOB, "dyntrain.training.worker.membership.client"])
def test_an_error_of_the_jobs_own_shows_its_sentence_wherever_it_was_raised(kind: type[Exception], by: str) -> None:
    """Whose epochs do not fit the job that is resumed read the reason below fifteen lines that are not theirs."""
    assert lines(kind("the script trains 1 epochs"), by) == ["lines", "library"]


@pytest.mark.parametrize(("error", "by"), [(KeyError("ours"), JOB), (ValueError("theirs"), "numpy")])
def test_other_errors_show_every_line(error: BaseException, by: str) -> None:
    assert lines(error, by) == ["lines", "library", "refuse", "look"]


def test_where_there_is_no_line_of_a_script_the_whole_is_shown() -> None:
    with pytest.raises(Refused) as caught:
        in_module(JOB, look)(Refused("no"))
    trace = caught.value.__traceback__
    assert trace is not None
    error = caught.value.with_traceback(trace.tb_next)
    assert [frame.name for frame in traceback.extract_tb(trace_for_people(error))] == ["look"]
