"""The lines of AWS Dynamic Training's launcher, on a cluster."""

from __future__ import annotations

import pytest
from dyntrain.training import events
from dyntrain.training.launch.launcher_lines import LauncherLines
from dyntrain.training.launch.plan import parse

A, B = "i-0000000000000000a", "i-0000000000000000b"


def ready(instance: str, address: str, *, base: bool = False) -> events.NodeReady:
    return events.NodeReady(instance=instance, attempt=1, address=address, base=base, at=1.0)


def formed(*members: str) -> events.Formed:
    return events.Formed(generation=1, members=members, digest="d", phases={}, background={}, at=2.0)


def test_each_node_is_told_once_with_its_part() -> None:
    lines = LauncherLines()
    assert lines.lines_for(ready(A, "10.0.0.1", base=True)) == [
        "Found prepare data success file: 10.0.0.1",
        "Launching server node at ip: 10.0.0.1",
        "Launching worker node at ip: 10.0.0.1",
    ]
    assert lines.lines_for(formed(A)) == []
    joins = ["Found prepare data success file: 10.0.0.2", "Launching new worker jobs: 10.0.0.2"]
    assert lines.lines_for(ready(B, "10.0.0.2")) == joins
    assert lines.lines_for(ready(B, "10.0.0.2")) == [], "it has only connected again"
    assert lines.lines_for(events.Left(instance=B, pid=1, generation=2, at=3.0)) == []
    assert lines.lines_for(ready(B, "10.0.0.2")) == joins


def test_an_event_of_an_earlier_version_says_nothing_of_addresses() -> None:
    assert LauncherLines().lines_for(events.NodeReady(instance=A, attempt=1, at=1.0)) == []


@pytest.mark.parametrize("launcher", ["mpi", "sge", "yarn"])
def test_dmlcs_other_launchers_are_refused_by_a_sentence(launcher: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["-n", "1", "--launcher", launcher, "true"])
    assert ended.value.code == 2
    assert f"{launcher}: elastic workers are started by ssh" in capsys.readouterr().err
