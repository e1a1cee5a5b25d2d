"""The embedded cloud: the AWS API that the real CLI, the real handlers and the real nodes talk to, in one process and its children.

`with Cloud() as cloud:` serves it at `cloud.endpoint`, on loopback unless machines have namespaces. Leaving the block ends every process and
port and removes the files.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server

from controller.local import table
from controller.local.account import Account
from controller.local.agenda import Agenda
from controller.local.bus import Bus
from controller.local.consequences import Consequences
from controller.local.dead_letters import DeadLetters
from controller.local.disturbance import Disturbance
from controller.local.errors import PortInUse
from controller.local.front import Front
from controller.local.groups import Groups
from controller.local.identity import Signer
from controller.local.instances import Instances, State
from controller.local.lambdas import Lambdas, execution_environments
from controller.local.namespaces import Namespaces
from controller.local.options import Options
from controller.local.reservations import Reservations
from controller.local.schedule import Schedule
from controller.local.spawner import Spawner
from controller.local.stream import Stream
from controller.local.trace import Trace
from controller.settings import IDENTITY_KEYS

DEFAULT_RESYNC = 60.0
RESOURCES = Path(".chalice") / "resources.yaml"
_HANDLER_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR")


class _QuietHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Silent: the trace has what matters."""


class Cloud:
    """`resync_seconds` is the period of rules that run every minute; longer ones are scaled with it.

    `app_directory` holds the Chalice app and its `.chalice` folder; None: where this package's project is. `state_dir` None: a temporary
    folder that `stop` removes. Raises PortInUse, AppNotLoaded or ResourcesInvalid at the start, and leaves nothing behind then either.
    """

    def __init__(
        self,
        port: int = 0,
        app: str = "app:app",
        state_dir: Path | None = None,
        resync_seconds: float = DEFAULT_RESYNC,
        app_directory: Path | None = None,
        options: Options | None = None,
    ) -> None:
        base = options if options is not None else Options()
        self.options = replace(base, schedule_scale=base.schedule_scale * resync_seconds / DEFAULT_RESYNC)
        self._port = port
        self._app = app
        self._app_directory = app_directory if app_directory is not None else Path(__file__).resolve().parents[2]
        self._given_state_dir = state_dir
        self._session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name=self.options.region)
        self._session_lock = threading.Lock()  # sessions are not thread-safe, clients are
        self.network = Namespaces() if self.options.namespaces else None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ---- what clients need

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self._port}"

    @property
    def _host(self) -> str:
        return "127.0.0.1" if self.network is None else self.network.gateway

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which any AWS client talks to this cloud."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": self.options.region,
        }

    @property
    def client_environment(self) -> dict[str, str]:
        """For a program that a person runs: this process's variables, with every AWS setting replaced by this cloud's."""
        return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | self.environment

    def client(self, service: str) -> Any:
        """A boto3 client of this cloud."""
        with self._session_lock:
            return self._session.client(service, endpoint_url=self.endpoint)  # type: ignore[call-overload]

    @property
    def identity_keys(self) -> str:
        """What verifies the identity documents of this cloud's instances; AWS publishes a certificate for each region instead."""
        return self.signer.public_key

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """How often each (service, action) was called, counted at the endpoint."""
        return self.front.calls

    @property
    def handler_pids(self) -> list[int]:
        return self.lambdas.pids

    def machine_pid(self, instance_id: str) -> int | None:
        machine = self.instances.machine(instance_id)
        return None if machine is None else machine.pid

    def instance_state(self, instance_id: str) -> State | None:
        """The truth, without the lag of describe calls."""
        return self.instances.state(instance_id)

    def interrupt_spot(self, instance_id: str, seconds: float = 120.0) -> None:
        """EC2 takes the instance back: notice now, termination after `seconds`."""
        self.instances.interrupt(instance_id, seconds)

    # ---- life

    def start(self) -> None:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self._make_state_dir()
        self.trace = Trace(self.logs / "trace.jsonl")
        self._undo.callback(self.trace.close)
        if self.network is not None:
            self._undo.callback(self.network.stop)
            self.network.start()
        listener = self._listen()
        self._undo.callback(listener.close)
        self._assemble()
        self.spawner.start()
        self._undo.callback(self.spawner.stop)
        self._serve(listener)
        self._make_table()
        self.dead_letters.start()
        self._undo.callback(self.stream.stop)
        self._undo.callback(self.lambdas.stop)
        self.rules = self.lambdas.start()
        self.bus.use(self.rules)
        self.agenda.start()
        self._undo.callback(self.agenda.stop)
        self._undo.callback(self.instances.stop)
        self.instances.start()
        self.groups.start()
        self.stream.start(self.rules.streams)
        self.schedule.start(self.rules)

    def stop(self) -> None:
        """Safe to call twice and after a failed start."""
        self._undo.close()

    def _assemble(self) -> None:
        options = self.options
        self.account = Account(options.region)
        self.signer = Signer()
        self.spawner = Spawner()
        self.agenda = Agenda(self.trace.complain)
        self.dead_letters = DeadLetters(self.account, self.state_dir / "dead-letters.jsonl")
        environments = execution_environments(
            self.spawner, self._app, self._app_directory, self._handler_variables(), self.logs, options.handler_processes
        )
        self.lambdas = Lambdas(self.account, self.agenda, self.trace, self.dead_letters, options, environments)
        self.disturbance = Disturbance(options.seed)
        self.bus = Bus(self.account, self.agenda, self.trace, self.lambdas, options, self.disturbance)
        self.instances = Instances(
            self.account,
            self.agenda,
            self.bus,
            self.spawner,
            self.trace,
            options,
            self.endpoint,
            self._port,
            self.state_dir,
            self.network,
            self.signer,
        )
        self.groups = Groups(self.account, self.agenda, self.bus, self.instances, options)
        self.schedule = Schedule(self.account, self.agenda, self.bus, options)
        self.resources = table.load_resources(self._app_directory / RESOURCES)
        filters = table.stream_filters(self.resources)
        self.stream = Stream(self.account, self.trace, self.lambdas, self.dead_letters, options, filters)
        consequences = Consequences(self.account, self.bus, self.instances, self.groups, options, self.stream.wake)
        self.reservations = Reservations()
        self.front = Front(self.account, self.groups, self.reservations, consequences, self.trace, self.disturbance)

    def _make_state_dir(self) -> None:
        if self._given_state_dir is None:
            self.state_dir = Path(tempfile.mkdtemp(prefix="dyntrain-cloud-"))
            self._undo.callback(shutil.rmtree, self.state_dir, ignore_errors=True)
        else:
            self.state_dir = self._given_state_dir.absolute()
        self.logs = self.state_dir / "logs"
        for directory in (self.logs, self.state_dir / "machines", self.state_dir / "shared"):
            directory.mkdir(parents=True, exist_ok=True)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(f"port {self._port} on {self._host} is in use; stop what listens there or choose another with --port") from error
            raise
        self._port = listener.getsockname()[1]
        return listener

    def _serve(self, listener: socket.socket) -> None:
        server = make_server(self._host, self._port, self.front, threaded=True, request_handler=_QuietHandler, fd=listener.fileno())
        server.daemon_threads = True  # type: ignore[attr-defined]
        server.block_on_close = False  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="endpoint", daemon=True)
        thread.start()

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join(10.0)

        self._undo.callback(close)

    def _make_table(self) -> None:
        client = self.client("dynamodb")
        client.create_table(**table.table_request(self.resources, self.options.table))
        attribute = table.ttl_attribute(self.resources)
        if attribute is not None:
            specification = {"AttributeName": attribute, "Enabled": True}
            client.update_time_to_live(TableName=self.options.table, TimeToLiveSpecification=specification)

    def _handler_variables(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _HANDLER_INHERITED if name in os.environ}
        path = [str(self._app_directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return (
            inherited
            | self.environment
            | {
                "AWS_REGION": self.options.region,
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
                "DYNTRAIN_TABLE": self.options.table,
                IDENTITY_KEYS: self.signer.public_key,
                "POWERTOOLS_SERVICE_NAME": "dyntrain",
                "POWERTOOLS_METRICS_NAMESPACE": "dyntrain",
                "POWERTOOLS_TRACE_DISABLED": "true",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join(part for part in path if part),
                "PYTHONUNBUFFERED": "1",
            }
            | self.options.handler_environment
        )
