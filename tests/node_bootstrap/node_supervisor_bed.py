"""A supervisor among stand-ins that write down what it asks of them, in order: for tests of single decisions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from dyntrain.controller.contract.notices import LEAVE_ON_RECOMMENDATION, Rebalance
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.supervision.supervisor import Supervisor
from dyntrain.training.protocol.node_messages import Launch, NodeHello, Welcome

TIMING = Timing(finish_seconds=120.0, retire_grace_seconds=5.0, coordinator_exit_seconds=30.0)
LAUNCH = Launch(request="one", command=("python", "x.py"), directory="/data")


class Part:
    """Writes down each call as `part.method`, with what it was given; `answers` are by method."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]], takes: float = 0.0, **answers: Any) -> None:
        self.__dict__.update(_name=name, _calls=calls, _takes=takes, **answers)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)

        def called(*given: Any) -> Any:
            self._calls.append((f"{self._name}.{method}", *given))
            return asyncio.sleep(self._takes)

        return called


class Bed:
    """`parts`: base, notices, desk; `launches`: people launch here; `tag`: the node is a base node by its tag."""

    def __init__(
        self,
        *parts: str,
        serves: bool = True,
        launches: bool = False,
        results: bool = False,
        rebalance: Rebalance = LEAVE_ON_RECOMMENDATION,
        tag: bool = False,
    ) -> None:
        self.calls: list[tuple[Any, ...]] = []
        calls = self.calls
        identity = SimpleNamespace(cluster="c", instance_id="i-1", private_ip="10.0.0.1", signed=None, base=tag)
        node: Any = SimpleNamespace(
            identity=identity,
            attempt=3,
            timing=TIMING,
            rebalance=rebalance,
            results=results,
            account=None,
            slot=0,
            slots=1,
        )
        self.finished = asyncio.Event()
        self.leads = True
        keeper = SimpleNamespace(finished=self.finished, retire=self._retire)
        group = Part("group", calls, state=lambda: ["offer"])
        self.base: Any = SimpleNamespace(group=group, coordinator=keeper, runs_ps_lite=serves, has_begun=serves)
        self.known: dict[str, Any] = {}
        worker: Any = Part("worker", calls, pid=77, set_program=lambda program: calls.append(("worker.runs", program)))
        worker.__dict__["on_disconnect"] = lambda: calls.append(("worker.on_disconnect",))
        isolation: Any = Part("isolation", calls, on_disconnect=lambda: calls.append(("isolation.on_disconnect",)))
        channel: Any = SimpleNamespace(
            send=lambda message: calls.append(("tell", message)),
            leave=lambda: calls.append(("leave",)),
            end_connection=lambda: calls.append(("hang_up",)),
        )
        status: Any = SimpleNamespace(
            report=lambda *report: calls.append(("report", *report)),
            set_listed=lambda listed: calls.append(("listed", listed)),
        )
        desk: Any = SimpleNamespace(
            on_disconnect=lambda: calls.append(("desk.on_disconnect",)),
            on_answer=lambda answer: calls.append(("answered", answer)),
        )
        notices: Any = SimpleNamespace(notices=self.known)
        logs: Any = SimpleNamespace(set_job=lambda job: calls.append(("set_job", job)))
        self.workers_error: OSError | None = None
        self.supervisor = Supervisor(
            node,
            channel,
            status,
            worker,
            isolation,
            self.base if "base" in parts else None,
            notices if "notices" in parts else None,
            [logs],
            self._workers,
            desk if "desk" in parts else None,
            self._program_of if launches else None,
        )

    def _retire(self) -> bool:
        self.calls.append(("keeper.retire",))
        return self.leads

    def _workers(self, addresses: Any) -> None:
        if self.workers_error is not None:
            raise self.workers_error
        self.calls.append(("workers", tuple(addresses)))

    def _program_of(self, launch: Launch) -> Any:
        return f"program of {launch.request}"

    @property
    def retired(self) -> bool:
        return self.supervisor._retired.is_set()

    def hello(self) -> NodeHello:
        return self.supervisor.hello()

    async def on_welcome(self, job: str = "job-1", launch: Launch | None = None) -> list[tuple[Any, ...]]:
        """What that alone leads to, without the control file, whose content others try."""
        self.calls.clear()
        with patch.object(self.supervisor, "write_control_file", lambda access: self.calls.append(("file", access))):
            await self.supervisor.on_welcome("access", Welcome(job=job, launch=launch))  # type: ignore[arg-type]
        return [*self.calls]

    async def on_message(self, message: Any) -> list[tuple[Any, ...]]:
        self.calls.clear()
        await self.supervisor.on_message(message)
        return [*self.calls]
