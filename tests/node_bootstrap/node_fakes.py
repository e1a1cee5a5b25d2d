"""The world around a node, by hand: metadata service, parameters, event bus, child scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import CoordinatorEndpoint, parameter
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.controller.local.pace import paced, patient
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.node import run_node
from dyntrain.node_bootstrap.steps.run import Dependencies
from waiting import until

INSTANCE = "i-0123456789abcdef0"
TOKEN = "the-cluster-token-that-must-stay-secret"
QUICK = Timing(
    finish_seconds=0.2,
    metadata_tries=3,
    metadata_backoff=Backoff(0.01, 0.02),
    setup_tries=3,
    setup_backoff=Backoff(0.02, 0.05),
    prepare_backoff=Backoff(0.02, 0.05),
    report_backoff=Backoff(0.05, 0.2),
    connection_backoff=Backoff(0.02, 0.1),
    refusal_backoff=Backoff(0.05, 0.2),
    own_restart_backoff=Backoff(0.05, 0.1),
    max_own_restarts=2,
    restart_order_seconds=30.0,
    coordinator_backoff=Backoff(0.05, 0.1),
    coordinator_exit_seconds=3.0,
    blank_backoff=Backoff(0.05, 0.1),
    notice_poll_seconds=0.05,
    retire_grace_seconds=1.0,
    node_stop_grace_seconds=1.0,
)


def unhurried(timing: Timing) -> Timing:
    """What a process is given to end, as long as this machine takes for it."""
    given = {
        name: getattr(timing, name)
        for name in ("finish_seconds", "retire_grace_seconds", "node_stop_grace_seconds", "coordinator_exit_seconds")
    }
    return replace(timing, **{name: paced(seconds) for name, seconds in given.items()})


async def wait_until(condition: Callable[[], Any], what: str, seconds: float = 15.0) -> Any:
    return await until(condition, seconds, what)


def processes_of(directory: Path) -> list[int]:
    """Every process that was started for this test: its directory is in the command or in the environment."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if str(directory).encode() in text:
                    processes.append(int(entry.name))
    return processes


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# ---- the metadata service


@dataclass
class FakeMetadata:
    """`mode`: v2, v1 (hands out no tokens, answers without), silent (accepts and never answers)."""

    values: dict[str, str]
    mode: str = "v2"
    tokens: list[str] = field(default_factory=list)
    refused: int = 0
    failures: int = 0  # as many answers to come are 503
    held: int = 0  # requests that wait for an answer for as long as the service runs
    over: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def expire(self) -> None:
        self.tokens.clear()


def metadata_values(ip: str = "127.0.0.1", instance: str = INSTANCE, **tags: str) -> dict[str, str]:
    tags = tags or {"demo-aws-dl-cfn-elastic-worker": ""}
    return {
        "meta-data/instance-id": instance,
        "meta-data/local-ipv4": ip,
        "meta-data/placement/region": "eu-west-1",
        "meta-data/tags/instance/": "\n".join(tags),
        **{f"meta-data/tags/instance/{key}": value for key, value in tags.items()},
        "dynamic/instance-identity/document": json.dumps({"instanceId": instance}),
        "dynamic/instance-identity/signature": "c2lnbmVk",
    }


BASE_TAGS = {"dyntrain:cluster": "demo", "dyntrain:base": "true", "NodeType": "Worker"}
MASTER_TAGS = {**BASE_TAGS, "NodeType": "Master"}


@contextlib.contextmanager
def metadata_service(values: dict[str, str], mode: str = "v2") -> Iterator[FakeMetadata]:
    fake = FakeMetadata(values, mode)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def answer(self, status: int, body: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_PUT(self) -> None:
            if fake.mode == "silent":
                fake.held += 1
                fake.over.wait(patient(100.0))
            elif fake.mode == "v1":
                self.answer(403)
            elif self.path != "/latest/api/token" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                self.answer(400)
            else:
                fake.tokens.append(f"token-{len(fake.tokens)}-{time.monotonic_ns()}")
                self.answer(200, fake.tokens[-1])

        def do_GET(self) -> None:
            if fake.failures:
                fake.failures -= 1
                self.answer(503)
            elif fake.mode == "v2" and self.headers.get("X-aws-ec2-metadata-token") not in fake.tokens:
                fake.refused += 1
                self.answer(401)
            elif (value := fake.values.get(self.path.removeprefix("/latest/"))) is None:
                self.answer(404)
            else:
                self.answer(200, value)

    with serving(Handler) as url:
        fake.url = url
        try:
            yield fake
        finally:
            fake.over.set()


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- parameters and event bus


@dataclass
class MemoryParameters:
    values: dict[str, str] = field(default_factory=dict)
    down: bool = False
    reads: int = 0

    def get(self, *names: str) -> dict[str, str]:
        self.reads += 1
        if self.down:
            raise ServiceUnavailable(f"cannot read the parameters {', '.join(names)}: the test says so")
        return {name: self.values[name] for name in names if name in self.values}


@dataclass
class MemoryReports:
    """Signs of life apart from what is told of the preparation."""

    sent: list[NodeReport] = field(default_factory=list)
    alive: list[NodeReport] = field(default_factory=list)
    failures: int = 0

    def put(self, report: NodeReport) -> None:
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("cannot report: the test says so")
        (self.alive if report.outcome == "alive" else self.sent).append(report)

    def outcomes(self) -> set[str]:
        return {report.outcome for report in self.sent}


# ---- a node in its world

WORKER = """
import os, sys, time, pathlib, json, subprocess
control = json.loads(pathlib.Path(os.environ["DYNTRAIN_CONTROL_FILE"]).read_text())
with open("workers.started", "a") as file:
    elastic = os.environ.get("ELASTIC_TRAINING_ENABLED")
    file.write(json.dumps({"pid": os.getpid(), "cwd": os.getcwd(), "job": control["job"], "elastic": elastic,
                           "mount": os.environ.get("EFS_MOUNT"), "url": control["url"],
                           "faced": "dyntrain.training.dt_scripts.hook" in sys.modules}) + "\\n")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
while True:
    if pathlib.Path("crash").exists():
        print("the worker says why", flush=True)
        sys.exit(3)
    if pathlib.Path("leave").exists():
        sys.exit(0)
    time.sleep(0.02)
"""


@dataclass
class World:
    directory: Path
    metadata: FakeMetadata
    parameters: MemoryParameters = field(default_factory=MemoryParameters)
    reports: MemoryReports = field(default_factory=MemoryReports)
    timing: Timing = QUICK
    blank: tuple[str, ...] = ()
    coordinator: tuple[str, ...] = ()

    @property
    def mount(self) -> Path:
        return self.directory / "shared"

    @property
    def layout(self) -> Layout:
        return Layout(self.directory / "root")

    def configure(self, **changes: Any) -> None:
        self.mount.mkdir(exist_ok=True)
        script = self.directory / "worker.py"
        script.write_text(WORKER)
        config = {"cluster": "demo", "mount": str(self.mount), "training_cmd": [sys.executable, str(script)], **changes}
        self.parameters.values[parameter("demo", "node")] = json.dumps(config)

    def publish(self, endpoint: CoordinatorEndpoint | None, token: str = TOKEN) -> None:
        assert endpoint is not None
        self.parameters.values[parameter("demo", "coordinator")] = endpoint.model_dump_json()
        self.parameters.values[parameter("demo", "token")] = token

    def script(self, text: str, name: str = "prepare-data.py") -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def dependencies(self, **timing: Any) -> Dependencies:
        return Dependencies(
            self.layout,
            self.metadata.url,
            parameters=lambda region: self.parameters,
            reports=lambda region: self.reports,
            coordinator=self.coordinator,
            blank=self.blank,
            timing=unhurried(replace(self.timing, **timing)),
        )

    def workers_started(self) -> list[dict[str, Any]]:
        path = self.mount / "workers.started"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logged(self) -> str:
        return "".join(path.read_text() for path in self.layout.log_folder.glob("*"))


@contextlib.contextmanager
def world(directory: Path, ip: str = "127.0.0.1", **tags: str) -> Iterator[World]:
    with metadata_service(metadata_values(ip, **tags)) as metadata:
        here = World(directory, metadata)
        here.configure()
        yield here


@contextlib.asynccontextmanager
async def living(dependencies: Dependencies) -> AsyncIterator[asyncio.Task[int]]:
    """The node lives while the block runs, and is stopped after it if it still does."""
    task = asyncio.create_task(run_node(dependencies))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
