"""The embedded cloud: an emulation of AWS in one process and its child processes. The AWS CLI, the controller's
handlers and the nodes use the emulated AWS API without changes.

`with Cloud() as cloud:` serves the emulated AWS API at the address `cloud.endpoint`. The endpoint listens on loopback,
unless machines have network namespaces. Leaving the `with` block ends every process, closes every port and removes
temporary files.
"""

from __future__ import annotations

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
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.settings import IDENTITY_KEYS
from dyntrain.controller.contract.stage import stage_parameter
from dyntrain.controller.core.records.facts import InstanceState
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.cloud import stacks
from dyntrain.controller.local.cloud.consequences import CallConsequences
from dyntrain.controller.local.cloud.front import Endpoint
from dyntrain.controller.local.cloud.groups import AutoScalingGroups
from dyntrain.controller.local.cloud.instances import Instances
from dyntrain.controller.local.cloud.past import PastStates
from dyntrain.controller.local.cloud.references import add_public_images, make_moto_resolve_references
from dyntrain.controller.local.cloud.reservations import Reservations
from dyntrain.controller.local.cloud.templates import make_moto_use_fast_parser
from dyntrain.controller.local.disturbance import Disturbance
from dyntrain.controller.local.errors import ResourcesInvalid
from dyntrain.controller.local.lambdas.bus import EventBus
from dyntrain.controller.local.lambdas.dead_letters import DeadLetters
from dyntrain.controller.local.lambdas.functions import Lambdas, execution_environments
from dyntrain.controller.local.lambdas.packaged import INHERITED_VARIABLES, packaged_template
from dyntrain.controller.local.lambdas.rules import EventRules, merged_rules, parse_function
from dyntrain.controller.local.lambdas.schedule import RuleSchedule
from dyntrain.controller.local.lambdas.stream import TableStream
from dyntrain.controller.local.listening import listen
from dyntrain.controller.local.machines.identity import Signer
from dyntrain.controller.local.machines.installation import repository_root, unit_command
from dyntrain.controller.local.machines.namespaces import Namespaces
from dyntrain.controller.local.machines.volumes import SHARED_FOLDER, VOLUME_PLACEHOLDER
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.spawner import Spawner
from dyntrain.controller.local.trace import CloudTrace
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server

DEFAULT_RESYNC_SECONDS = 60.0  # period of the controller's resync in AWS
PACKAGED_APP = Path(__file__).resolve().parents[1] / "app"  # the Chalice app's folder in an installed wheel


class _QuietHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because the embedded cloud's trace replaces the server's request log."""


class Cloud:
    """An embedded cloud. `resync_seconds` is the period of scheduled rules that run every minute in AWS. The periods of
    all other scheduled rules change in proportion.

    `app_directory` is the folder that contains the Chalice app and the app's `.chalice` folder. If `app_directory` is
    None, the cloud uses the repository's app, or the installed wheel's app if there is no repository. Without
    `state_dir`, the cloud's files are in a temporary folder that `stop` removes. `start` raises PortInUse,
    AppNotLoaded, ResourcesInvalid or InstallationFailed. When `start` fails, no process, open port or temporary file is
    left.
    """

    def __init__(
        self,
        port: int = 0,
        app: str = "app:app",
        state_dir: Path | None = None,
        resync_seconds: float = DEFAULT_RESYNC_SECONDS,
        app_directory: Path | None = None,
        options: Options | None = None,
    ) -> None:
        unscaled_options = options if options is not None else Options()
        self.options = replace(
            unscaled_options, schedule_scale=unscaled_options.schedule_scale * resync_seconds / DEFAULT_RESYNC_SECONDS
        )
        self._port = port
        self._app = app
        self._app_directory = app_directory or repository_root() or PACKAGED_APP
        self._requested_state_dir = state_dir
        self._session = boto3.Session(
            aws_access_key_id="local", aws_secret_access_key="local", region_name=self.options.region
        )
        self._session_lock = threading.Lock()  # sessions are not thread-safe, clients are
        self.network = Namespaces() if self.options.namespaces else None
        self._clean_up = ExitStack()
        self.table = ""
        self.rules = EventRules((), (), ())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- for clients

    @property
    def endpoint(self) -> str:
        return f"http://{self._bind_host}:{self._port}"

    @property
    def _bind_host(self) -> str:
        return "127.0.0.1" if self.network is None else self.network.gateway

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make any AWS client call this embedded cloud."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": self.options.region,
        }

    @property
    def program_environment(self) -> dict[str, str]:
        """Environment variables for a user's program: this process's variables, but with the AWS settings of this
        embedded cloud.
        """
        return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | self.environment

    def client(self, service: str) -> Any:
        """A boto3 client that calls this embedded cloud."""
        with self._session_lock:
            return self._session.client(service, endpoint_url=self.endpoint)  # type: ignore[call-overload]

    @property
    def identity_keys(self) -> str:
        """The public key that verifies identity documents of this embedded cloud's instances. AWS itself publishes a
        certificate for each region instead of a public key.
        """
        return self.signer.public_key

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """How often clients called each (service, action) of the API."""
        return self.front.calls

    @property
    def handler_pids(self) -> list[int]:
        return self.lambdas.pids

    def machine_pid(self, instance_id: str) -> int | None:
        machine = self.instances.machine(instance_id)
        return None if machine is None else machine.pid

    def instance_state(self, instance_id: str) -> InstanceState | None:
        """The true state of the instance, which describe calls show later, or None for an unknown instance."""
        return self.instances.state(instance_id)

    def interrupt_spot(self, instance_id: str, seconds: float = 120.0) -> None:
        """Interrupt a Spot instance: give notice now, and terminate the instance after `seconds`."""
        self.instances.interrupt_spot(instance_id, seconds)

    # ---- start and stop

    def start(self) -> None:
        try:
            self._start_components()
        except BaseException:
            self.stop()
            raise

    def _start_components(self) -> None:
        self._make_state_dir()
        self.trace = CloudTrace(self.logs / "trace.jsonl")
        self._clean_up.callback(self.trace.close)
        if self.network is not None:
            self._clean_up.callback(self.network.stop)
            self.network.start()
        listener = listen(self._bind_host, self._port)
        self._clean_up.callback(listener.close)
        self._port = listener.getsockname()[1]
        self._create_components()
        self.spawner.start()
        self._clean_up.callback(self.spawner.stop)
        self._serve_endpoint(listener)
        self._clean_up.callback(self.stream.stop)
        self._clean_up.callback(self.lambdas.stop)
        self._deploy_controller()
        self.bus.set_rules(self.rules)
        self.agenda.start()
        self._clean_up.callback(self.agenda.stop)
        self._clean_up.callback(self.instances.stop)
        self.instances.start()
        self.groups.start()
        self.stream.start(self.rules.streams)
        self.schedule.start(self.rules)

    def stop(self) -> None:
        """Stop the embedded cloud. `stop` may be called more than once, and after a failed start."""
        self._clean_up.close()

    def _create_components(self) -> None:
        if self.options.machines and self.options.machine_command is None and self.options.bare is None:
            self.options = replace(self.options, machine_command=(*unit_command(), "--volume", VOLUME_PLACEHOLDER))
        options = self.options
        make_moto_use_fast_parser()
        make_moto_resolve_references()
        self.account = Account(options.region)
        add_public_images(self.account)
        self.signer = Signer()
        self.spawner = Spawner()
        self.agenda = Agenda(self.trace.write_error)
        self.dead_letters = DeadLetters(self.account, self.state_dir / "dead-letters.jsonl")
        environments = execution_environments(
            self.spawner,
            self._app,
            self._app_directory,
            self._handler_variables(),
            self.logs,
            options.handler_processes,
        )
        self.lambdas = Lambdas(self.account, self.agenda, self.trace, self.dead_letters, options, environments)
        self.disturbance = Disturbance(options.seed)
        past_states = PastStates(self.account, options.seed, options.behind)
        self.bus = EventBus(self.account, self.agenda, self.trace, self.lambdas, options, self.disturbance)
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
            past_states,
        )
        self.groups = AutoScalingGroups(self.account, self.agenda, self.bus, self.instances, options, past_states)
        self.schedule = RuleSchedule(self.account, self.agenda, self.bus, options)
        self.stream = TableStream(self.account, self.trace, self.lambdas, self.dead_letters, options)
        consequences = CallConsequences(
            self.account, self.bus, self.instances, self.groups, options, self.stream.wake_reader, past_states
        )
        self.reservations = Reservations()
        self.front = Endpoint(
            self.account, self.groups, self.reservations, consequences, self.trace, self.disturbance, past_states
        )

    def _make_state_dir(self) -> None:
        if self._requested_state_dir is None:
            self.state_dir = Path(tempfile.mkdtemp(prefix="dyntrain-cloud-"))
            self._clean_up.callback(shutil.rmtree, self.state_dir, ignore_errors=True)
        else:
            self.state_dir = self._requested_state_dir.absolute()
        self.logs = self.state_dir / "logs"
        for directory in (self.logs, self.state_dir / "machines", self.state_dir / SHARED_FOLDER):
            directory.mkdir(parents=True, exist_ok=True)

    def _serve_endpoint(self, listener: socket.socket) -> None:
        server = make_server(
            self._bind_host, self._port, self.front, threaded=True, request_handler=_QuietHandler, fd=listener.fileno()
        )
        server.daemon_threads = True  # type: ignore[attr-defined]
        server.block_on_close = False  # type: ignore[attr-defined]
        server_thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="endpoint", daemon=True
        )
        server_thread.start()

        def close_server() -> None:
            server.shutdown()
            server.server_close()
            server_thread.join(10.0)

        self._clean_up.callback(close_server)

    def _deploy_controller(self) -> None:
        """Create the controller's stack from the template of `make deploy`, and register the stack's functions with the
        emulated Lambda and EventBridge.
        """
        template_text, stage = packaged_template(self._app, self._app_directory), self.options.stage
        stack_name = f"dyntrain-{stage}"
        try:
            self.client("cloudformation").create_stack(
                StackName=stack_name,
                TemplateBody=template_text,
                Capabilities=["CAPABILITY_IAM"],
                Parameters=[{"ParameterKey": "Stage", "ParameterValue": stage}],
            )
            table_parameter = self.client("ssm").get_parameter(Name=stage_parameter(stage, "table"))["Parameter"]
            parsed_functions = [
                parse_function(properties) for properties in stacks.all_function_properties(self.account, stack_name)
            ]
        except (BotoCoreError, ClientError, KeyError) as error:
            raise ResourcesInvalid(
                f"the controller's stack could not be created: {error!r}; see {self.trace.path}"
            ) from error
        self.table = str(table_parameter["Value"])
        self.rules = merged_rules(rules for _function, rules in parsed_functions)
        self.dead_letters.set_destinations(
            {function.name: function.destination for function, _rules in parsed_functions}
        )
        # in AWS, the stage's configuration has the public keys of the region
        stage_variables = {IDENTITY_KEYS: self.signer.public_key, **self.options.handler_environment}
        self.lambdas.start([function for function, _rules in parsed_functions], stage_variables)

    def _handler_variables(self) -> dict[str, str]:
        inherited_variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        python_path = [str(self._app_directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return (
            inherited_variables
            | self.environment
            | {
                "AWS_REGION": self.options.region,
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
                "POWERTOOLS_TRACE_DISABLED": "true",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join(path_entry for path_entry in python_path if path_entry),
                "PYTHONUNBUFFERED": "1",
            }
        )
