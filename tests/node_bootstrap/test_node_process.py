"""The real command, `python -m dyntrain.node_bootstrap run`, with real boto3 against an endpoint made by hand."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.contract.messages import parameter
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.node import CONFIGURATION, FAULT, RETIRED, TRY_AGAIN
from dyntrain.training.protocol.node_messages import Listed
from node_coordinator import start_coordinator
from node_fakes import INSTANCE, TOKEN, World, alive, processes_of, serving, wait_until, world

ROOT = Path(__file__).parents[2]


@dataclass
class FakeAws:
    parameters: dict[str, str]
    entries: list[dict[str, Any]] = field(default_factory=list)
    refuse: int = 0
    url: str = ""


@contextlib.contextmanager
def aws_endpoint(parameters: dict[str, str]) -> Iterator[FakeAws]:
    """GetParameters and PutEvents in the services' JSON protocol; a SecureString comes out right only when it is asked
    for decrypted.
    """
    fake = FakeAws(parameters)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            status, answer = {"GetParameters": self.parameters, "PutEvents": self.events}[operation](body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def parameters(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            clear = {name: value for name, value in fake.parameters.items() if not name.endswith("/token")}
            known = fake.parameters if body.get("WithDecryption") else clear | {"token": "encrypted"}
            return 200, {
                "Parameters": [{"Name": name, "Value": known[name]} for name in body["Names"] if name in known],
                "InvalidParameters": [name for name in body["Names"] if name not in known],
            }

        def events(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            if fake.refuse:
                fake.refuse -= 1
                return 200, {
                    "FailedEntryCount": 1,
                    "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}],
                }
            fake.entries.extend(body["Entries"])
            return 200, {"FailedEntryCount": 0, "Entries": [{"EventId": "1"} for _ in body["Entries"]]}

    with serving(Handler) as url:
        fake.url = url
        yield fake


def environment(here: World, aws: FakeAws) -> dict[str, str]:
    """As on a machine: no keys and no region in it, both come from the metadata service."""
    role = "meta-data/iam/security-credentials/"
    expiration = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": "AKID",
        "SecretAccessKey": "hidden-key",
        "Token": "session",
        "Expiration": expiration,
    }
    here.metadata.values |= {role: "node", f"{role}node": json.dumps(keys)}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(here.directory),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": here.metadata.url,
        "AWS_ENDPOINT_URL": aws.url,
        "DYNTRAIN_MACHINE": "1",
    }


def command(here: World, aws: FakeAws) -> subprocess.Popen[bytes]:
    arguments = [
        sys.executable,
        "-m",
        "dyntrain.node_bootstrap",
        "run",
        "--root",
        str(here.layout.root),
        "--notice-seconds",
        "0.2",
        "--finish-seconds",
        "0.2",
    ]
    return subprocess.Popen(
        arguments, env=environment(here, aws), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )


@contextlib.contextmanager
def running(here: World, aws: FakeAws) -> Iterator[subprocess.Popen[bytes]]:
    process = command(here, aws)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patient(8.0))
        process.kill()
        process.wait()
        for pid in processes_of(here.directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def ended(process: subprocess.Popen[bytes], seconds: float = 15.0) -> int:
    await wait_until(lambda: process.poll() is not None, "the bootstrap ends", seconds)
    return process.returncode


def with_worker(tmp_path: Path, scenario: Callable[[World, FakeAws, subprocess.Popen[bytes], Any], Any]) -> Any:
    """Run `scenario` with a bootstrap whose worker trains."""

    async def run() -> Any:
        with world(tmp_path) as here, aws_endpoint(here.parameters.values) as aws:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            with running(here, aws) as process:
                await wait_until(here.workers_started, "the worker is started")
                try:
                    return await scenario(here, aws, process, coordinator)
                finally:
                    await coordinator.stop()

    return asyncio.run(run())


def test_real_command_reports_and_retires(tmp_path: Path) -> None:
    """Credentials from the role, region from the metadata, a decrypted token, an event in the shape that the
    controller's rule expects.
    """

    async def scenario(here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any) -> int:
        entry = (await wait_until(lambda: aws.entries, "the node reports"))[0]
        assert (entry["Source"], entry["DetailType"], entry["Resources"]) == (
            "dyntrain.node.demo",
            "Node Prepared",
            [INSTANCE],
        )
        assert NodeReport.model_validate_json(entry["Detail"]).outcome == "prepared"
        await coordinator.send(Listed(listed=True))
        await coordinator.retire()
        code = await ended(process)
        assert processes_of(tmp_path) == []
        assert TOKEN not in here.logged()
        assert "hidden-key" not in here.logged()
        return code

    assert with_worker(tmp_path, scenario) == RETIRED


def test_sigterm_leaves_no_process(tmp_path: Path) -> None:
    """The machine stops: neither the worker nor what it started may hold the shared volume."""

    async def scenario(here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any) -> int:
        process.send_signal(signal.SIGTERM)
        code = await ended(process, 8.0)
        assert processes_of(tmp_path) == []
        return code

    assert with_worker(tmp_path, scenario) == 128 + signal.SIGTERM


def bootstrap_of(process: subprocess.Popen[bytes]) -> int:
    """The child of the process that was started: that one only watches over it."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


@pytest.mark.parametrize("watched", [True, False], ids=["the bootstrap", "the process above it"])
def test_sigkill_leaves_no_orphan(tmp_path: Path, watched: bool) -> None:
    """The worker's own children would hold the volume, the GPU and the ports of a node that comes back, or train on
    unseen.
    """

    async def scenario(here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any) -> int:
        bootstrap, worker = bootstrap_of(process), here.workers_started()[0]["pid"]
        known = {process.pid, bootstrap, worker}
        await wait_until(
            lambda: set(processes_of(tmp_path)) > known, "the worker has a child: otherwise this test shows nothing"
        )
        os.kill(bootstrap if watched else process.pid, signal.SIGKILL)
        await wait_until(lambda: not processes_of(tmp_path), "everything that the node started is gone", 8.0)
        return await ended(process)

    assert with_worker(tmp_path, scenario) == (128 + signal.SIGKILL if watched else -signal.SIGKILL)


def test_next_life_sweeps_what_two_kills_at_once_left(tmp_path: Path) -> None:
    """Nobody is left to clean up: the kernel kills the worker, the next bootstrap what the worker had started."""

    async def scenario(here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any) -> int:
        worker, bootstrap = here.workers_started()[0]["pid"], bootstrap_of(process)
        children = Path(f"/proc/{worker}/task/{worker}/children")  # of the bootstrap some live for a moment only
        await wait_until(lambda: children.read_text().split(), "the worker has a child")
        for pid in (process.pid, bootstrap):
            os.kill(pid, signal.SIGSTOP)  # so that neither sees the other die
        for pid in (process.pid, bootstrap):
            os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: not alive(worker), "the worker dies with the bootstrap", 5.0)
        orphans = set(processes_of(tmp_path)) - {process.pid}
        assert orphans  # the worker's own child lives: otherwise this test shows nothing
        with running(here, aws) as second:
            await wait_until(lambda: len(here.workers_started()) == 2, "the next life goes on")
            assert not orphans & set(processes_of(tmp_path))
            assert coordinator.hellos[-1].attempt == 2
            second.send_signal(signal.SIGINT)
            code = await ended(second, 8.0)
            assert processes_of(tmp_path) == []
            return code

    assert with_worker(tmp_path, scenario) == 128 + signal.SIGINT


def test_refused_entries_are_sent_again(tmp_path: Path) -> None:
    """PutEvents answers 200 to a request whose entries it did not take."""

    async def scenario() -> list[dict[str, Any]]:
        with world(tmp_path) as here, aws_endpoint(here.parameters.values) as aws:
            aws.refuse = 1
            with running(here, aws):
                entries = await wait_until(lambda: aws.entries, "the report is repeated")
                assert "ThrottlingException" in here.logged()
                return list(entries)

    assert asyncio.run(scenario())[0]["DetailType"] == "Node Prepared"


def test_second_bootstrap_of_a_node_is_refused(tmp_path: Path) -> None:
    """Two would start two workers that push to the same generation."""

    async def scenario(here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any) -> int:
        with running(here, aws) as second:
            return await ended(second)

    assert with_worker(tmp_path, scenario) == TRY_AGAIN


def test_configuration_error_ends_the_command(tmp_path: Path) -> None:
    async def scenario() -> int:
        with world(tmp_path) as here, aws_endpoint(here.parameters.values) as aws:
            here.parameters.values[parameter("demo", "node")] = "{}"
            with running(here, aws) as process:
                code = await ended(process)
            assert "field training_cmd" in here.logged()
            return code

    assert asyncio.run(scenario()) == CONFIGURATION


def test_the_plan_is_printed_beside_a_bootstrap_that_runs(tmp_path: Path) -> None:
    """Whoever logs in to a node that does not get on must not disturb it by asking why."""

    async def scenario(
        here: World, aws: FakeAws, process: subprocess.Popen[bytes], coordinator: Any
    ) -> tuple[int, str, bool]:
        arguments = [sys.executable, "-m", "dyntrain.node_bootstrap", "plan", "--root", str(here.layout.root)]
        planning = await asyncio.create_subprocess_exec(
            *arguments, env=environment(here, aws), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await planning.communicate()
        return (
            planning.returncode or 0,
            printed.decode(),
            process.poll() is None and alive(here.workers_started()[0]["pid"]),
        )

    code, printed, undisturbed = with_worker(tmp_path, scenario)
    assert (code, undisturbed) == (0, True)
    assert [line.split()[0] for line in printed.splitlines() if "left:" in line] == [
        "sweep",
        "report",
        "signal",
        "supervise",
    ]


def test_unusable_root_is_one_clear_line(tmp_path: Path) -> None:
    """A read-only or full disk must be seen in the journal at once, without a traceback to decipher."""
    (tmp_path / "var").touch()
    arguments = [sys.executable, "-m", "dyntrain.node_bootstrap", "run", "--root", str(tmp_path)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=patient(20), check=False)
    assert done.returncode == FAULT
    assert done.stderr.startswith("node_bootstrap: cannot use the files below")
    assert len(done.stderr.splitlines()) == 1
