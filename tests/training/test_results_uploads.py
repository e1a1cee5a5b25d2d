"""A job's results in S3.

What would break for a user: a machine that ends after the job takes the model along; an upload that fails or hangs
holds up training; a link that somebody laid on the volume brings a file of the node into a bucket.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from dyntrain.controller.local.pace import patient
from dyntrain.training import events
from dyntrain.training.coordinator.results import ResultsUploader
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import read_events
from dyntrain.training.protocol.messages import Position
from dyntrain.training.protocol.results import Uploaded
from dyntrain.training.report.uploads import CurveFile, Uploads
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.phases.ending import fail
from job_bed import BED, ListedHosts
from moto_server import moto_server
from session_driver import A
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from waiting import until, wait_for

PROGRAM = (sys.executable, "-m", "dyntrain.training.report.uploads")
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}


def pause(step: int) -> str:
    forming = events.Forming(
        at=100.0 + step,
        number=1,
        members=("i-1",),
        position=Position(epoch=0, offset=0, step=step),
        cause="the job begins",
        joining=("i-1",),
        leaving=(),
    )
    return (forming.line() + events.Pause(at=101.0 + step, generation=1, seconds=step, phases={}).line()).decode()


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "job-1")
    (folder.output / "plots").mkdir(parents=True)
    folder.commits.mkdir()
    folder.events.write_text(pause(3))
    (folder.commits / "000001-000000000003.commit").write_bytes(b"model")
    (folder.output / "plots" / "loss.png").write_bytes(b"loss")
    return folder


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with moto_server("s3") as endpoint:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        s3 = boto3.Session("x", "x", region_name="us-east-1").client("s3", endpoint_url=endpoint)
        s3.create_bucket(Bucket="kept")
        yield s3


def test_the_program_uploads_what_is_new_and_tensorboard_reads_the_curves(
    bucket: Any, job: JobFolder, tmp_path: Path
) -> None:
    secret = tmp_path / "shadow"
    secret.write_bytes(b"secret")
    (job.output / "link").symlink_to(secret)
    (job.output / "folder").symlink_to(tmp_path, target_is_directory=True)
    (job.output / ".half").write_bytes(b"ha")
    os.mkfifo(job.output / "pipe")
    with subprocess.Popen(
        (*PROGRAM, str(job.root), "s3://kept/runs"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def upload() -> Uploaded:
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return Uploaded.model_validate_json(process.stdout.readline())

        try:
            first = upload()
            assert (first.files, first.failed) == (3, None)
            assert upload().files == 0, "nothing has changed"
            with job.events.open("a") as file:
                file.write(pause(5))
            (job.output / "plots" / "loss.png").write_bytes(b"lower")
            assert upload().files == 2
        finally:
            process.communicate(timeout=patient(20))
    assert process.returncode == 0

    def read(name: str) -> bytes:
        return bytes(bucket.get_object(Bucket="kept", Key=f"runs/job-1/{name}")["Body"].read())

    names = [entry["Key"].removeprefix("runs/job-1/") for entry in bucket.list_objects_v2(Bucket="kept")["Contents"]]
    curves = "tensorboard/events.out.tfevents.0.job-1.dyntrain"
    assert sorted(names) == ["commits/000001-000000000003.commit", "output/plots/loss.png", curves]
    assert (read(names[0]), read("output/plots/loss.png")) == (b"model", b"lower")
    (tmp_path / Path(curves).name).write_bytes(read(curves))
    board = EventAccumulator(str(tmp_path / Path(curves).name), size_guidance={"tensors": 0}).Reload()
    assert [(at.step, at.tensor_proto.float_val[0]) for at in board.Tensors("job/pause_seconds")] == [
        (3, 3.0),
        (5, 5.0),
    ]


def test_a_bucket_that_is_not_there_is_named_and_what_it_did_not_take_comes_later(bucket: Any, job: JobFolder) -> None:
    done = subprocess.run(
        (*PROGRAM, str(job.root), "s3://nowhere/runs"),
        input="\n",
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    answer = Uploaded.model_validate_json(done.stdout)
    assert answer.files == 0
    assert "NoSuchBucket" in str(answer.failed)

    class Away:
        def __init__(self) -> None:
            self.taken: list[str] = []
            self.away = True

        def put(self, key: str, content: IO[bytes]) -> None:
            if self.away and self.taken:
                raise EndpointConnectionError(endpoint_url="s3")
            self.taken.append(key)

    away = Away()
    uploads = Uploads(job, job.commits, away, None)
    first = uploads.sync()
    assert (first.files, "output/plots/loss.png" in str(first.failed)) == (1, True)
    away.away = False
    assert uploads.sync() == uploads.sync().model_copy(
        update={"files": 1, "size": 4, "seconds": pytest.approx(0, abs=9)}
    )
    assert away.taken == ["job-1/commits/000001-000000000003.commit", "job-1/output/plots/loss.png"]


def test_events_that_cannot_be_read_keep_nothing_else_from_the_bucket(job: JobFolder, tmp_path: Path) -> None:
    job.events.unlink()
    taken: list[str] = []

    class Takes:
        def put(self, key: str, content: IO[bytes]) -> None:
            taken.append(Path(key).name)

    uploads = Uploads(job, job.commits, Takes(), CurveFile(job, tmp_path / "board"))
    first = uploads.sync()
    assert (first.files, "No such file" in str(first.failed)) == (2, True)
    job.events.write_text(pause(3))
    assert (uploads.sync().failed, taken[-1]) == (None, "events.out.tfevents.0.job-1.dyntrain")


def test_a_commit_that_made_room_meanwhile_and_a_file_nobody_may_read_stop_nothing(job: JobFolder) -> None:
    (job.commits / "000001-000000000001.commit").write_bytes(b"old")
    (job.output / "after").write_bytes(b"after")

    class Shrinks:
        def __init__(self) -> None:
            self.taken: list[str] = []

        def put(self, key: str, content: IO[bytes]) -> None:
            self.taken.append(Path(key).name)
            (job.commits / "000001-000000000001.commit").unlink(missing_ok=True)
            if key.endswith("after"):
                raise PermissionError("not yours")

    shrinks = Shrinks()
    answer = Uploads(job, job.commits, shrinks, None).sync()
    assert shrinks.taken == ["000001-000000000003.commit", "after", "loss.png"]
    assert "not yours" in str(answer.failed)


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def command_of(process: str) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:  # it has just ended
        return ""


SCRIPT = "import sys, json, time, pathlib\nfor n, _ in enumerate(sys.stdin):\n    {}\n    sys.stdout.flush()\n"
GOOD = "print(json.dumps(dict(files=1, size=9, seconds=0.1)))"


class Announced:
    """What is announced while a test goes on beside `run`."""

    def __init__(self, script: str, afterwards: str = "") -> None:
        self._heard: asyncio.Queue[events.Event] = asyncio.Queue()
        self.results = ResultsUploader(
            (sys.executable, "-c", SCRIPT.format(script) + afterwards), self._heard.put_nowait
        )

    async def __aenter__(self) -> Announced:
        self._running = asyncio.create_task(self.results.run())
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def next(self) -> events.Event:
        return await asyncio.wait_for(self._heard.get(), patient(20))


def test_each_epoch_and_the_end_are_uploaded_and_told(tmp_path: Path) -> None:
    tidied = tmp_path / "tidied"

    async def course() -> None:
        async with Announced(GOOD, f"pathlib.Path({str(tidied)!r}).touch()") as bed:
            bed.results.request_upload()
            assert isinstance(await bed.next(), events.ResultsUploaded)
            await bed.results.finish_uploads()
            assert isinstance(last := await bed.next(), events.ResultsUploaded)
            assert (last.files, last.size) == (1, 9)

    asyncio.run(course())
    assert tidied.exists(), "it ends by itself, so that it can take its temporary files away"


def test_a_program_that_dies_is_told_of_and_another_one_goes_on(tmp_path: Path) -> None:
    once = tmp_path / "once"
    script = f"p = pathlib.Path({str(once)!r}); b = p.exists(); p.touch(); {GOOD} if b else sys.exit(3)"

    async def course() -> None:
        async with Announced(script) as bed:
            bed.results.request_upload()
            assert isinstance(lost := await bed.next(), events.ResultsNotUploaded)
            assert "exit code 3" in lost.reason
            bed.results.request_upload()
            assert isinstance(await bed.next(), events.ResultsUploaded)

    asyncio.run(course())


def test_an_upload_that_hangs_delays_the_jobs_end_by_its_bound_and_leaves_no_process() -> None:
    async def course() -> None:
        async with Announced("time.sleep(600)") as bed:
            await bed.results.finish_uploads(0.5)
            assert isinstance(late := await bed.next(), events.ResultsNotUploaded)
            assert "the rest is on the volume" in late.reason

    asyncio.run(course())
    wait_for(lambda: "time.sleep(600)" not in "".join(map(command_of, children())), what="a killed process is gone")


def test_who_hears_that_a_job_has_ended_finds_its_results(tmp_path: Path) -> None:
    """A person, or a script, that then ends the machines or copies the model."""
    begun, there = tmp_path / "begun", tmp_path / "there"
    wait = (
        f"pathlib.Path({str(begun)!r}).touch()\n    while not pathlib.Path({str(there)!r}).exists(): time.sleep(0.05)"
    )

    async def scenario() -> None:
        hosts, folder = ListedHosts(), JobFolder.of(tmp_path, **BED)
        options = Options(**BED, started_at=1.0, limits=Limits(1, 2), workers=1)
        command = (sys.executable, "-c", SCRIPT.format(f"{wait}\n    {GOOD}"))
        coordinator = Coordinator(options, folder, hosts, "127.0.0.1", A, uploads=command)
        running = asyncio.create_task(coordinator.run())
        await until(lambda: bool(hosts.reports), 30)
        coordinator.carry_out(fail(coordinator.session.job, "it was made to", 1.0))
        await until(begun.exists, 30)
        known = len(hosts.reports)
        await until(lambda: len(hosts.reports) > known, 30)
        assert {report.state for report in hosts.reports} == {"starting"}, "the lease lives on, and says no more"
        there.touch()
        await running
        assert hosts.reports[-1].state == "failed"
        assert [event.event for event in read_events(folder.events)][-1] == "results_uploaded"

    asyncio.run(scenario())
