"""The two options that bound every wait: wrong ones are refused at the start, with the one line that says what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.clocks import Clocks
from training.coordinator import main
from training.launch import LaunchError, parse


@given(liveness=st.floats(2, 1000), ratio=st.floats(3, 1000))
def test_every_bound_follows_from_the_two(liveness: float, ratio: float) -> None:
    clocks = Clocks(liveness, liveness * ratio)
    assert clocks.ping + clocks.pong == pytest.approx(clocks.liveness)
    assert 0 < clocks.reconnect < clocks.ping < clocks.liveness < clocks.patience <= clocks.progress * 1.0001
    assert 0 < clocks.release < clocks.patience
    assert 0 < clocks.blocked < clocks.liveness <= clocks.formation <= clocks.progress
    assert clocks.start == clocks.progress, "a living process that gets nowhere"


@pytest.mark.parametrize(("options", "message"), [(["--liveness-seconds", "1"], "at least 2"), (["--progress-seconds", "30"], "at least 3 times")])
def test_wrong_clocks_are_refused_before_anything_starts(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    with pytest.raises(LaunchError, match=message):
        parse(["-n", "1", "--launcher", "local", *options, "python", "train.py"])
    with pytest.raises(SystemExit):
        main(["--cluster", "c", "--instance-id", "i", "--host", "127.0.0.1", "--mount", str(tmp_path), *options])
    assert message in capsys.readouterr().err
