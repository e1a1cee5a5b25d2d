"""How fast the job trains, as it is told: what would break for a user is a rate that falls to nothing, in `status` and
in the metrics, whenever the workers change.
"""

from __future__ import annotations

import pytest
from dyntrain.training.protocol.messages import Position, Progress
from dyntrain.training.protocol.node_messages import GroupFailed
from session_driver import A, B, C, Driver


def says(driver: Driver, name: str, rate: float) -> None:
    at, number = Position(epoch=0, offset=0, step=1), driver.session.job.number
    driver.do("worker_progressed", name, Progress(generation=number, position=at, samples_per_second=rate))


def rate(driver: Driver) -> float:
    return driver.session.job.report().samples_per_second


def test_workers_that_were_formed_anew_are_as_fast_as_before_until_they_have_said_otherwise(three: Driver) -> None:
    for name in (A, B, C):
        says(three, name, 100.0)
    assert rate(three) == pytest.approx(300.0)
    three.want(A, B)
    three.check_in(A, B, C)
    three.train(A, B)
    assert rate(three) == pytest.approx(200.0), "two of the three go on"
    says(three, A, 150.0)
    assert rate(three) == pytest.approx(300.0), "who has not said it yet is as fast as who has"
    says(three, B, 50.0)
    assert rate(three) == pytest.approx(200.0)


def test_a_job_that_does_not_train_has_no_rate(three: Driver) -> None:
    for name in (A, B, C):
        says(three, name, 100.0)
    three.do("group_failed", A, GroupFailed(generation=three.session.job.number, reason="port taken"))
    assert (three.session.job.report().state, rate(three)) == ("paused", 0.0)
