"""`dyntrain logs` and `events --follow`: what was written, each line once, also by machines that are gone."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dyntrain.controller.adapters.logs import LogLine
from dyntrain.controller.cli.answers.log_sources import FromCloudWatch, FromFiles, LineFilter, time_of_line
from dyntrain.controller.cli.commands.events import TrailReader
from dyntrain.controller.cli.commands.logs import _log_location
from dyntrain.controller.cli.main import main
from dyntrain.controller.cli.shell.errors import unknown_region_message
from dyntrain.controller.cli.shell.waiting import follow, waiting
from dyntrain.controller.contract.errors import GiveUp, RetryLater
from dyntrain.controller.core.history.trail import ActionDone
from dyntrain.controller.loops.ports import TrailEntry
from waiting import wait_for

GONE, HERE = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
WORKERS = frozenset({"worker"})


@dataclass
class Store:
    """CloudWatch in memory."""

    written: list[LogLine] = field(default_factory=list)
    since: list[float] = field(default_factory=list)

    def write(self, at: float, instance: str, text: str, kind: str = "worker", job: str = "job-1") -> None:
        self.written.append(LogLine(at, f"demo/{job}/{instance}/{kind}", text, f"event-{len(self.written)}"))

    def streams(self, group: str, prefix: str) -> list[str]:
        assert group == "/dyntrain/demo"
        return sorted({line.stream for line in self.written if line.stream.startswith(prefix)})

    def lines(self, group: str, streams: Iterable[str], since: float) -> Iterator[LogLine]:
        self.since.append(since)
        return (line for line in self.written if line.stream in streams and line.at >= since)


def source(store: Any, job: str | None = None, instances: Iterable[str] = (), since: float = 0.0) -> FromCloudWatch:
    return FromCloudWatch(store, LineFilter("demo", job, frozenset(instances) or None, WORKERS), since)


def test_lines_of_a_machine_that_is_gone_are_shown_in_order_with_who_wrote_them() -> None:
    store = Store()
    store.write(20.0, HERE, "epoch 2\n")
    store.write(10.0, GONE, "epoch 1\n")
    store.write(15.0, GONE, "bootstrap", kind="node")
    assert [(line.who, line.text) for line in source(store).next()] == [
        (f"{GONE} worker", "epoch 1"),
        (f"{HERE} worker", "epoch 2"),
    ]
    assert [line.text for line in source(store, instances=[HERE]).next()] == ["epoch 2"]
    assert list(source(store, job="job-2").next()) == []


def test_followed_lines_come_once_and_late_ones_are_not_missed() -> None:
    store = Store()
    store.write(1000.0, HERE, "one")
    follower = source(store)
    assert [line.text for line in follower.next()] == ["one"]
    store.write(2000.0, HERE, "three")
    assert [line.text for line in follower.next()] == ["three"]
    store.write(1950.0, GONE, "two, late")
    assert [line.text for line in follower.next()] == ["two, late"]
    assert list(follower.next()) == []
    assert store.since[-1] > 1000.0, "what was shown long ago is not asked for again"


def test_the_files_of_an_embedded_cloud_are_read_and_followed(tmp_path: Path) -> None:
    with pytest.raises(GiveUp, match="not the directory of an embedded cloud"):
        FromFiles(tmp_path, LineFilter("demo", None, None, WORKERS), 0.0)
    folder = tmp_path / "machines" / GONE / "var/log/dyntrain"
    folder.mkdir(parents=True)
    (folder / "worker.log").write_text("2026-01-01 10:00:00 old\n  of the old one\n2026-01-01 12:00:00 new\ntorn")
    since = time_of_line("2026-01-01T11:00:00Z")
    assert since is not None
    follower = FromFiles(tmp_path, LineFilter("demo", None, None, WORKERS), since)
    assert [line.text for line in follower.next()] == ["2026-01-01 12:00:00 new"]
    with (folder / "worker.log").open("a") as file:
        file.write(" line\n")
    assert [(line.who, line.text) for line in follower.next()] == [(f"{GONE} worker", "torn line")]
    assert list(follower.next()) == []


def written(cloud: Path, instance: str, cluster: str, *lines: str) -> None:
    folder = cloud / "machines" / instance / "var/log/dyntrain"
    folder.mkdir(parents=True)
    entries = [{"time": 1.0, "message": "started"}, {"time": 2.0, "cluster": cluster, "message": "who it is"}]
    (folder / "node.log").write_text("".join(json.dumps(one) + "\n" for one in entries))
    (folder / "worker.log").write_text("".join(f"{line}\n" for line in lines))


def test_an_embedded_cloud_with_two_clusters_shows_the_lines_of_the_one_that_was_asked_for(tmp_path: Path) -> None:
    """And of a name that nobody has none, which the command says, with another exit code than 0."""
    written(tmp_path, HERE, "demo", "2026-01-01 10:00:00 of demo")
    written(tmp_path, GONE, "digits", "2026-01-01 10:00:00 of digits")
    shown = {name: [line.text for line in files_of(tmp_path, name).next()] for name in ("demo", "digits", "nosuch")}
    assert shown == {"demo": ["2026-01-01 10:00:00 of demo"], "digits": ["2026-01-01 10:00:00 of digits"], "nosuch": []}
    result = CliRunner().invoke(main, ["logs", "nosuch", "--since", "3650d", "--directory", str(tmp_path)])
    assert (result.exit_code, "no log line" in result.stderr) == (1, True)


def test_lines_of_several_files_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    """As those of CloudWatch do; a line without a time stays behind the one before it."""
    written(tmp_path, HERE, "demo", "2026-01-01 10:00:00 one", "  more of one", "2026-01-01 10:00:02 three")
    written(tmp_path, GONE, "demo", "2026-01-01 10:00:01 two")
    lines = [line.text.rpartition(" ")[2] for line in files_of(tmp_path, "demo").next()]
    assert lines == ["one", "one", "two", "three"]


def test_the_lines_of_all_workers_of_a_node_are_shown_with_which_of_them_wrote_it(tmp_path: Path) -> None:
    written(tmp_path, HERE, "demo", "2026-01-01 10:00:00 one")
    folder = tmp_path / "machines" / HERE / "var/log/dyntrain"
    (folder / "worker-1.log").write_text("2026-01-01 10:00:01 two\n")
    expected = [(f"{HERE} worker", "one"), (f"{HERE} worker-1", "two")]
    assert [(line.who, line.text[-3:]) for line in files_of(tmp_path, "demo").next()] == expected
    store = Store()
    store.write(1.0, HERE, "one")
    store.write(2.0, HERE, "two", kind="worker-1")
    assert [(line.who, line.text) for line in source(store).next()] == expected


def test_files_that_are_not_kept_by_job_are_not_shown_for_one(tmp_path: Path) -> None:
    written(tmp_path, HERE, "demo", "2026-01-01 10:00:00 of another job")
    result = CliRunner().invoke(main, ["logs", "demo", "--job", "job-1", "--directory", str(tmp_path)])
    assert (result.exit_code, "omit --job" in result.stderr) == (1, True)


def files_of(cloud: Path, cluster: str) -> FromFiles:
    return FromFiles(cloud, LineFilter(cluster, None, None, WORKERS), 0.0)


def test_a_nodes_own_lines_say_their_time() -> None:
    assert time_of_line(json.dumps({"time": 12.5, "message": "x"})) == 12.5
    assert time_of_line("{not json") is None


def test_followed_events_come_once_although_some_are_written_late() -> None:
    entries: list[tuple[str, TrailEntry]] = []

    def did(at: float, instance: str) -> None:
        entries.append(("demo", TrailEntry(at, ActionDone(kind="Terminate", instance=instance))))

    trail = TrailReader(lambda since: sorted((e for e in entries if e[1].at >= since), key=lambda e: e[1].at), 0.0)
    did(100.0, HERE)
    assert len(trail.next()) == 1
    did(200.0, HERE)
    assert [entry.at for _, entry in trail.next()] == [200.0]
    did(195.0, GONE)
    assert [entry.at for _, entry in trail.next()] == [195.0]
    assert trail.next() == []


def test_a_mistyped_region_is_told_as_such() -> None:
    assert "is eu-central-1 meant?" in unknown_region_message("eu-cenral-1", ["eu-central-1", "us-east-1"])
    assert unknown_region_message("us-east-1", ["us-east-1"]) == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_on_a_terminal_what_it_is_at_and_nothing_in_a_file() -> None:
    terminal, file, quick = Terminal(), io.StringIO(), Terminal()
    with waiting("reading the stages", terminal, 0.0) as doing, waiting("reading the stages", file, 0.0):
        wait_for(lambda: "reading the stages ...\n" in terminal.getvalue(), 30, terminal.getvalue)
        doing("reading \x1b[2J")
        wait_for(lambda: "reading  [2J ...\n" in terminal.getvalue(), 30, terminal.getvalue)
    with waiting("reading", quick, 3600.0):
        pass
    assert (file.getvalue(), quick.getvalue()) == ("", "")


def test_following_outlives_calls_that_are_lost_and_says_so_once_each_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(["epoch 1", None, None, "epoch 2", None, "epoch 3", KeyboardInterrupt])
    shown: list[str] = []

    def show() -> None:
        match next(answers):
            case None:
                raise RetryLater("ThrottlingException")
            case str() as line:
                shown.append(line)
            case _:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(show, pause=lambda _seconds: None)
    assert shown == ["epoch 1", "epoch 2", "epoch 3"]
    assert capsys.readouterr().err.count("ThrottlingException") == 2


def test_who_follows_logs_that_are_empty_hears_where_they_were_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not nothing, for ever: the logs of an embedded cloud are files."""
    looked: list[bool] = []
    (tmp_path / "machines").mkdir()
    monkeypatch.setattr("dyntrain.controller.cli.commands.logs.go_on", lambda _: looked.append(True))
    result = CliRunner().invoke(main, ["logs", "demo", "-f", "--directory", str(tmp_path)])
    assert looked == [True]
    assert f"no log line since 1h matches in {tmp_path}; waiting" in result.stderr
    assert "--directory" in _log_location("demo", None)
