"""Options that no job could keep, of its waits and of its size, are refused at the start, with the one line that says
what to do.
"""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.coordinator.command import main
from dyntrain.training.launch.plan import LaunchError, parse
from dyntrain.training.protocol.channel import answer_seconds
from dyntrain.training.protocol.clocks import Clocks
from hypothesis import given
from hypothesis import strategies as st


@given(liveness=st.floats(2, 1000), ratio=st.floats(3, 1000))
def test_every_bound_follows_from_the_two(liveness: float, ratio: float) -> None:
    clocks = Clocks(liveness, liveness * ratio)
    assert clocks.ping_interval + clocks.pong_limit == pytest.approx(clocks.liveness)
    assert (
        0
        < clocks.reconnect_limit
        < clocks.ping_interval
        < clocks.liveness
        < clocks.patience
        <= clocks.progress * 1.0001
    )
    assert 0 < clocks.release_limit < clocks.patience
    assert 0 < clocks.exit_limit < clocks.liveness <= clocks.formation_limit <= clocks.progress
    assert clocks.start_limit == clocks.progress, "a living process that gets nowhere"


def test_an_answer_takes_no_more_than_half_of_a_jobs_patience() -> None:
    """Another coordinator may be published meanwhile; the default leaves time to greet hundreds."""
    short = Clocks(2.0, 60.0)
    assert answer_seconds(short) == short.patience / 2
    assert answer_seconds(Clocks()) == 30.0


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--liveness-seconds", "1"], "at least 2"), (["--progress-seconds", "30"], "at least 3 times")],
)
def test_wrong_clocks_are_refused_before_anything_starts(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    with pytest.raises(LaunchError, match=message):
        parse(["-n", "1", "--launcher", "local", *options, "python", "train.py"])
    with pytest.raises(SystemExit):
        main(["--cluster", "c", "--instance-id", "i", "--host", "127.0.0.1", "--mount", str(tmp_path), *options])
    assert message in capsys.readouterr().err


def test_more_workers_than_can_be_told_to_be_at_one_step_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    """Their sums would be rounded, and a correct script be stopped as one that counts its batches wrongly."""
    options = ["--cluster", "c", "--instance-id", "i", "--host", "127.0.0.1", "--mount", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*options, "--max-workers", str(MOST_WORKERS + 1)])
    assert f"must be at most {MOST_WORKERS}" in capsys.readouterr().err
