"""A job in TensorBoard: read back by the real one, as a browser would ask it.

What would break for a user: points that are shown twice after a restart, curves that stand still while the job trains.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from click.testing import CliRunner
from dyntrain.controller.adapters.board_bucket import BoardBucket
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.job_history import HistoryMark, HistoryPoint, JobHistory
from dyntrain.controller.local.pace import patient
from dyntrain.training import events
from dyntrain.training.protocol.messages import Position
from dyntrain.training.report.board import Board, Scalar, Text, entries_of_history, latest_time
from moto_server import moto_server
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from waiting import wait_for

LOSS = "metrics/loss"
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}


def at(step: int) -> Position:
    return Position(epoch=step // 10, offset=step % 10, step=step)


def forming(number: int, step: int, cause: str) -> events.Forming:
    return events.Forming(
        at=100.0 + number, number=number, members=("i-1",), position=at(step), cause=cause, joining=("i-1",), leaving=()
    )


def segment(when: float, start: int, end: int, loss: float) -> events.Segment:
    return events.Segment.model_validate(
        {
            "at": when, "generation": 1, "workers": 2, "from": at(start), "to": at(end), "epoch": 0,
            "samples": 1000, "seconds": 2.0, "pids": {}, "metrics": {"loss": loss},
        }
    )  # fmt: skip


FIRST = (
    forming(1, 0, "the job begins"),
    segment(110, 0, 10, 0.9),
    events.Pause(at=111, generation=1, seconds=0.25, phases={}),
    segment(120, 10, 20, 0.8),
    segment(130, 20, 30, 0.7),
    segment(140, 30, 40, float("nan")),
    events.Restart(at=150, generation=1, reason="the base node i-1 was lost", commit=at(20)),
    forming(2, 20, "the job goes on from its last commit"),
    segment(160, 20, 30, 0.65),
)


def written(folder: Path, history: tuple[events.Event, ...]) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / "events.jsonl").open("ab") as file:
        for event in history:
            file.write(event.line())
    return folder


def test_what_was_trained_again_after_a_restart_is_shown_once_and_so_is_what_is_written_twice(tmp_path: Path) -> None:
    job = written(tmp_path / "job-7", FIRST)
    for _ in range(2):
        done = CliRunner().invoke(main, ["tensorboard", str(job), "--logdir", str(tmp_path / "runs"), "--no-serve"])
        assert done.exit_code == 0, done.output
    shown = EventAccumulator(str(tmp_path / "runs" / "job-7")).Reload()

    def curve(tag: str) -> list[tuple[int, float]]:
        points = [(event.step, float(make_ndarray(event.tensor_proto))) for event in shown.Tensors(tag)]
        return [(step, round(value, 3)) for step, value in points]

    assert curve(LOSS) == [(10, 0.9), (20, 0.8), (30, 0.65)]
    assert curve("job/samples_per_second") == [(10, 500.0), (20, 500.0), (30, 500.0)]
    assert curve("job/pause_seconds") == [(10, 0.25)]
    (changes,) = [tag for tag in shown.Tags()["tensors"] if tag.startswith("job/changes")]
    texts = [event.tensor_proto.string_val[0].decode() for event in shown.Tensors(changes)]
    assert "goes on from its last commit" in texts[-1]
    assert "joining i-1" in texts[-1]


def test_of_a_job_whose_reports_are_all_there_is_each_point_comes_once() -> None:
    points = [HistoryPoint(at=10.0 * n, epoch=n, step=5 * n, workers=2, samples_per_second=9.0) for n in (1, 2)]
    marks = [
        HistoryMark(at=12.0, event="forming", generation=2, reason="a worker was added"),
        HistoryMark(at=13.0, event="pause", generation=2, seconds=0.5),
        HistoryMark(at=14.0, event="worker_lost", instance="i-2", reason="its process ended"),
    ]
    history = JobHistory(points=tuple(points), marks=tuple(marks))
    entries = list(entries_of_history(history, 0.0))
    assert Scalar(20.0, 10, "job/workers", 2.0) in entries
    assert Scalar(13.0, 5, "job/pause_seconds", 0.5) in entries
    assert Text(14.0, 5, "job/notes", "worker lost i-2: its process ended") in entries
    assert {entry.at for entry in entries_of_history(history, 12.0)} == {13.0, 14.0, 20.0}
    assert list(entries_of_history(history, latest_time(history))) == []


def test_a_job_that_is_over_stays_so_whatever_comes_of_its_workers_ends() -> None:
    """Else `--follow` never ends."""
    board = Board()
    history = (
        events.Finished(at=1.0, position=at(40)),
        events.WorkerLost(at=2.0, instance="i-1", pid=7, reason="its process ended"),
    )
    for event in history:
        list(board.entries_of(event))
    assert board.over


@pytest.mark.parametrize(
    ("options", "message"),
    [(["nowhere/job"], "cannot be read"), (["--no-serve"], "needs --logdir"), (["--port", "70000"], "70000")],
)
def test_what_cannot_be_shown_is_one_line(options: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["tensorboard", *options])
    assert (done.exit_code != 0, message in done.output, "Traceback" in done.output) == (True, True, False)


def test_the_real_tensorboard_shows_a_job_that_trains_and_ends_with_the_command(tmp_path: Path) -> None:
    """Also as a background job of a script's, in which the shell has Ctrl-C ignored."""
    job = written(tmp_path / "job-8", FIRST)
    command = [sys.executable, "-m", "dyntrain", "tensorboard", str(job), "--port", "0"]
    with (tmp_path / "output").open("w") as output:
        script = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
        process = subprocess.Popen(script, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        address = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", (tmp_path / "output").read_text()), 60.0)[0]
        query = urllib.parse.urlencode({"run": "job-8", "tag": LOSS})

        def losses() -> list[float]:
            try:
                scalars: Any = read(f"{address}/data/plugin/scalars/scalars?{query}")
            except OSError:  # it has not read the files yet, and knows no such run
                return []
            return [round(value, 3) for _when, _step, value in scalars]

        wait_for(lambda: losses() == [0.9, 0.8, 0.65], 60.0)
        written(job, (segment(170, 30, 40, 0.5),))
        wait_for(lambda: losses() == [0.9, 0.8, 0.65, 0.5], 60.0)
        child = children(process.pid)
        assert child
        process.send_signal(signal.SIGINT)
        assert process.wait(patient(20)) == 130
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in child), 20.0)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with moto_server("s3") as endpoint:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint, "S3_ENDPOINT": endpoint}.items():
            monkeypatch.setenv(name, value)  # the second is TensorBoard's
        s3 = boto3.Session("x", "x", region_name="us-east-1").client("s3", endpoint_url=endpoint)
        s3.create_bucket(Bucket="curves")
        yield s3


def objects(s3: Any) -> list[str]:
    return [entry["Key"] for entry in s3.list_objects_v2(Bucket="curves").get("Contents", [])]


def test_a_tensorboard_that_is_open_goes_on_when_a_run_is_written_again(bucket: Any, tmp_path: Path) -> None:
    """Each point once, by the real TensorBoard, which reads the bucket all the while."""
    job = written(tmp_path / "job-9", FIRST)
    theirs = "runs/job-9/events.out.tfevents.1.elsewhere"
    bucket.put_object(Bucket="curves", Key=theirs, Body=b"")
    command = [sys.executable, "-m", "dyntrain", "tensorboard", str(job), "--logdir", "s3://curves/runs", "--no-serve"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert done.returncode == 0, done.stderr
    assert len(objects(bucket)) == 2

    board = [sys.executable, "-m", "tensorboard.main", "--logdir", "s3://curves/runs", "--port", "0"]
    board += ["--reload_interval", "1"]
    with (tmp_path / "output").open("w") as out, subprocess.Popen(board, stdout=out, stderr=out) as process:
        try:
            address = wait_for(lambda: re.search(r"http://\S+:\d+", (tmp_path / "output").read_text()), 60.0)[0]
            query = urllib.parse.urlencode({"run": "job-9", "tag": LOSS})

            def losses() -> list[float]:
                try:
                    scalars: Any = read(f"{address}/data/plugin/scalars/scalars?{query}")
                except OSError:
                    return []
                return [round(value, 3) for _when, _step, value in scalars]

            def read_output() -> str:
                return (tmp_path / "output").read_text()

            wait_for(lambda: losses() == [0.9, 0.8, 0.65], 60.0, read_output)
            with subprocess.Popen([*command, "--follow"], stderr=subprocess.PIPE, text=True) as following:
                try:
                    wait_for(lambda: len(objects(bucket)) == 3, 60.0, "its own file beside the earlier one")
                    written(job, (segment(170, 30, 40, 0.5), events.Finished(at=180, position=at(40))))
                    complaints = following.communicate(timeout=patient(60))[1]
                finally:
                    following.kill()
            assert following.returncode == 0, complaints
            wait_for(lambda: losses() == [0.9, 0.8, 0.65, 0.5], 60.0, read_output)
        finally:
            process.terminate()
    assert theirs in objects(bucket), "files of others stay"


def test_an_upload_that_failed_is_made_up_for_and_a_bucket_that_is_not_there_is_named(
    bucket: Any, tmp_path: Path
) -> None:
    job = written(tmp_path / "job-10", FIRST)
    done = CliRunner().invoke(main, ["tensorboard", str(job), "--logdir", "s3://nowhere/runs", "--no-serve"])
    assert (done.exit_code, "s3://nowhere/runs/job-10/" in done.output, "Traceback" in done.output) == (1, True, False)
    done = CliRunner().invoke(main, ["tensorboard", str(job), "--logdir", "s3:///runs", "--no-serve"])
    assert (done.exit_code, "names no bucket" in done.output) == (1, True)

    class Away:
        """The first upload gets no answer."""

        def __init__(self) -> None:
            self.puts = 0

        def s3(self) -> Any:
            return self

        def get_paginator(self, name: str) -> Any:
            return bucket.get_paginator(name)

        def put_object(self, **given: Any) -> None:
            self.puts += 1
            if self.puts == 1:
                raise EndpointConnectionError(endpoint_url="s3")
            bucket.put_object(**given)

    (tmp_path / "one.dyntrain").write_bytes(b"1")
    kept = BoardBucket(cast("Any", Away()), "curves", "runs/job-10", tmp_path, ".dyntrain")
    with pytest.raises(RetryLater):
        kept.sync()
    for _ in range(2):
        kept.sync()
    assert objects(bucket) == ["runs/job-10/one.dyntrain"]


def read(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=patient(10)) as answer:  # noqa: S310
        return json.load(answer)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
