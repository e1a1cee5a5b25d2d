"""A training cluster on this machine for the benchmarks, with the real coordinator and workers.

Nodes are wired as on EC2, except for metadata and SSM. The coordinator and the nodes run on an event loop in a thread;
ps-lite and worker processes are the real ones, with one OpenMP thread each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import (
    CoordinatorEndpoint,
    NodeConfig,
    Target,
    parameter,
)
from dyntrain.controller.contract.reports import (
    JobReport,
    NodeReport,
)
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import Interrupted
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.launched import BLANK_COMMAND
from dyntrain.node_bootstrap.supervision.supervisor import Supervisor
from dyntrain.node_bootstrap.supervision.wiring import Ec2Node, build_services
from dyntrain.training.audit import Audit, audit_directory
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.host import exec_child
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.engines import VARIABLE as ENGINE
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.node_messages import GroupReady
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options

NAME = "bench"
HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}  # several processes share the cores
Event = dict[str, Any]


def instance(letter: str) -> str:
    return f"i-{ord(letter):08x}"


class _Shared:
    """The contents of SSM, for the coordinator (`Hosts`) and the nodes (`Parameters`), and the job's last report."""

    def __init__(self) -> None:
        self.target: Target | None = None
        self._endpoint: CoordinatorEndpoint | None = None
        self.reported: JobReport | None = None
        self._values: dict[str, str] = {}

    def read_target(self) -> Target | None:
        return self.target

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self._endpoint = endpoint
        self._values = {parameter(NAME, "token"): token, parameter(NAME, "coordinator"): endpoint.model_dump_json()}

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        return self._endpoint

    def report(self, report: JobReport) -> None:
        self.reported = report

    def put(self, report: NodeReport) -> None:
        """Drop the report, as there is no controller."""

    def get(self, *names: str) -> dict[str, str]:
        return {name: self._values[name] for name in names if name in self._values}


class _Untagged(MetadataClient):
    """The metadata service of instances whose tags never change."""

    async def read(self, path: str) -> str | None:
        return None


class _Events:
    """The events file; each read continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self.seen = path, 0, list[Event]()

    def read(self) -> list[Event]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._at += len(line)
                    self.seen.append(json.loads(line))
        return self.seen


class Cluster:
    """A cluster; `close` ends everything that it started. Times in `events` are seconds since the Unix epoch."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        workers: int = 2,
        spares: int = 0,
        engine: EngineName = "pslite",
        at_most: int = 8,
        **options: Any,
    ) -> None:
        self._folder = folder
        self._config = NodeConfig(
            cluster=NAME,
            mount=str(folder),
            training_cmd=tuple(command),
            workers=workers,
            warm_spares=spares,
            servers=options.get("servers", "base"),
            environment={**ENVIRONMENT, ENGINE: engine},
        )
        self._shared = _Shared()
        self._options = Options(
            cluster=NAME, job="job-1", started_at=1.0, limits=Limits(1, at_most), workers=workers, **options
        )
        self.job = JobFolder.of(folder, NAME, "job-1")
        self._events = _Events(self.job.events)
        self._revision = 0
        self.nodes: dict[str, Supervisor] = {}
        self._children: list[Children] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self._coordinator = self._start(
            Coordinator(self._options, self.job, self._shared, "127.0.0.1", instance("A")).run()
        )

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def start() -> asyncio.Task[None]:
            return asyncio.create_task(coroutine)

        task: asyncio.Task[None] = self._call(start())
        self._tasks.append(task)
        return task

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def add_node(self, letter: str, base: bool = False) -> None:
        self._start(self._node(letter, base))

    async def _node(self, letter: str, base: bool) -> None:
        layout, timing = Layout(self._folder / letter), Timing()
        identity = Identity(
            instance_id=instance(letter),
            private_ip=f"127.0.66.{ord(letter)}",
            region="local",
            cluster=NAME,
            base=base,
            master=False,
            tags={},
        )
        children = Children(str(layout.state_folder), 1)
        self._children.append(children)
        layout.state_folder.mkdir(parents=True, exist_ok=True)
        parts = build_services(
            Ec2Node(
                identity=identity,
                config=self._config,
                attempt=1,
                environment=self._config.environment,
                layout=layout,
                timing=timing,
                parameters=self._shared,
                reports=self._shared,
                metadata=_Untagged("http://127.0.0.1", timing),
                children=children,
                coordinator=("false",),  # it runs in this process; the target nominates nobody
                blank=BLANK_COMMAND,
            )
        )
        supervisor = self.nodes[letter] = parts.supervisor
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(supervisor.run())
                await supervisor.retire(await supervisor.until_retired())
                raise Interrupted("retired")
        except* Interrupted:
            pass

    def want(self, letters: str) -> None:
        self._revision += 1
        self._shared.target = Target.of(self._revision, tuple(instance(letter) for letter in letters))

    def groups_ready(self) -> bool:
        """Whether every base node offers ps-lite processes for the next change."""
        groups = [node.base.group for node in self.nodes.values() if node.base is not None and node.base.has_begun]
        return bool(groups) and all(
            any(isinstance(message, GroupReady) for message in group.state()) for group in groups
        )

    def obeyed(self) -> bool:
        """Whether the coordinator has reported the last target's revision."""
        return self._shared.reported is not None and self._shared.reported.revision == self._revision

    def events(self, name: str | None = None) -> list[Event]:
        return [event for event in self._events.read() if name in (None, event["event"])]

    def wait_for(self, what: Callable[[], Any], message: str, seconds: float = 300.0) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := what():
                return value
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.result()  # raises an error of the coordinator or a node, which says more than a timeout
            time.sleep(0.02)
        last = "\n".join(str(event) for event in self.events()[-15:])
        raise TimeoutError(f"not within {seconds:.0f} s: {message}; the last events:\n{last}")

    def wait_for_event(self, name: str, after: int, message: str = "", **fields: Any) -> Event:
        """The first event `name` with these fields among those past the first `after` of all."""

        def find() -> Event | None:
            matching = (
                e for e in self.events()[after:] if e["event"] == name and all(e.get(k) == v for k, v in fields.items())
            )
            return next(matching, None)

        event: Event = self.wait_for(find, message or f"{name} {fields}")
        return event

    def begin(self, base: str = "AB") -> None:
        """Add base nodes, and wait until they train."""
        for letter in base:
            self.add_node(letter, base=True)
        self.want(base)
        for letter in base:
            self.wait_for_event("joined", 0, instance=instance(letter))

    def worker_pid(self, letter: str) -> int | None:
        return self.nodes[letter].worker.pid

    def spares_ready(self) -> int:
        return sum(node.worker.spares.ready_count for node in self.nodes.values())

    def wait_for_segments(self, count: int) -> None:
        """Wait for `count` more boundaries."""
        after = len(self.events("segment")) + count
        self.wait_for(lambda: len(self.events("segment")) >= after, f"{count} segments")

    def finished(self, seconds: float = 300.0) -> None:
        self.wait_for(self._coordinator.done, "the job's end", seconds)
        self._coordinator.result()

    def audit(self) -> Audit:
        return audit_directory(self.job.ledger)

    def close(self) -> None:
        async def stop() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.gather(*(children.stop_all(0.0) for children in self._children))

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


def resnet(network: str, *more: str) -> list[str]:
    return [sys.executable, str(HERE / "resnet_job.py"), "--network", network, *more]


def mortal(command: Sequence[str]) -> list[str]:
    """Wrap a command so that it dies with this process, however that ends."""
    return [sys.executable, "-I", "-S", exec_child.__file__, str(os.getpid()), "0", *command]
