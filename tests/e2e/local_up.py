"""`dyntrain local up` as a person runs it, and the real `aws` command line against it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from dyntrain.controller.local.pace import patient
from waiting import exit_code, wait_for

DYNTRAIN = str(Path(sys.executable).with_name("dyntrain"))
TINY = str(Path(__file__).parents[1] / "training" / "tiny_job.py")


def aws_cli() -> str:
    """The command named by DYNTRAIN_AWS_CLI (`make test` installs one), or the one on PATH."""
    command = os.environ.get("DYNTRAIN_AWS_CLI") or shutil.which("aws")
    assert command, "no aws command line: run the tests with `make test`"
    return command


class LocalUp:
    """The foreground command, its printed variables, and a person's other terminal. The job is small, and its steps are
    slow until `let_it_finish`: the machine belongs to what is tested. `script`: a command in its place, run in `here`.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        epochs: int = 400,
        script: Sequence[str] = (),
        here: Path | None = None,
    ) -> None:
        self.folder, self._hold = folder, folder / "hold"
        self._hold.touch()
        self._out = (folder / "up.out").open("wb")
        tiny = ["python", TINY, "--epochs", str(epochs), "--hold", str(self._hold), "--step-seconds", "0.3"]
        argv = [DYNTRAIN, "local", "up", "--port", "0", "--directory", str(folder / "cloud"), *arguments, "--"]
        argv += script or tiny
        self.process = subprocess.Popen(
            argv,
            cwd=here,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**self._plain_environment(), "PYTHONFAULTHANDLER": "1"},
        )
        self.wait_for(lambda: "Ctrl-C ends" in self.output(), 60, "the command prints how to use the cloud")
        self.variables = dict(re.findall(r"((?:AWS|DYNTRAIN)_\w+)=(\S+)", self.output()))
        self.template = re.findall(r"launch template +(\S+)", self.output())[0]
        self.group = re.findall(r"group +(\S+)", self.output())[0]
        self.dashboard = next(iter(re.findall(r"Dashboard: (\S+)", self.output())), None)

    @staticmethod
    def _plain_environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}

    def output(self) -> str:
        return (self.folder / "up.out").read_text()

    @property
    def mount(self) -> Path:
        return self.folder / "cloud" / "shared"

    def aws(self, *arguments: str) -> Any:
        """The answer of the aws command line, parsed."""
        env = {**self._plain_environment(), **self.variables, "AWS_PAGER": "", "AWS_MAX_ATTEMPTS": "3"}
        done = subprocess.run(
            [aws_cli(), *arguments, "--output", "json"],
            env=env,
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
        assert done.returncode == 0, f"aws {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    def dyntrain(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**self._plain_environment(), **self.variables}
        return subprocess.run(
            [DYNTRAIN, *arguments], env=env, capture_output=True, text=True, timeout=patient(60), check=False
        )

    @cached_property
    def table(self) -> str:
        """As everybody finds it: CloudFormation made its name up."""
        return str(self.aws("ssm", "get-parameter", "--name", "/dyntrain/-stage-/local/table")["Parameter"]["Value"])

    def node(self, instance: str) -> dict[str, Any]:
        """What `dyntrain status --json` says of the instance; {} when it is not there."""
        done = self.dyntrain("status", "--json", "--gone")
        clusters = json.loads(done.stdout)["clusters"] if done.returncode == 0 else []
        return next((node for cluster in clusters for node in cluster["nodes"] if node["instance"] == instance), {})

    @cached_property
    def _ec2(self) -> Any:
        """For what is asked again and again: each call of the command line costs a second of a processor."""
        names = {
            "AWS_ACCESS_KEY_ID": "aws_access_key_id",
            "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
            "AWS_DEFAULT_REGION": "region_name",
        }
        session = boto3.Session(**{argument: self.variables[name] for name, argument in names.items()})
        return session.client("ec2", endpoint_url=self.variables["AWS_ENDPOINT_URL"])

    def status_tag(self, instance: str) -> str | None:
        filters = [{"Name": "resource-id", "Values": [instance]}, {"Name": "key", "Values": ["elastic_worker_status"]}]
        tags = self._ec2.describe_tags(Filters=filters)["Tags"]
        return tags[0]["Value"] if tags else None

    def state(self, instance: str) -> str:
        return str(
            self._ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"]
        )

    def instances(self) -> set[str]:
        answer = self._ec2.describe_instances()
        return {
            instance["InstanceId"] for reservation in answer["Reservations"] for instance in reservation["Instances"]
        }

    def job_events(self, name: str) -> list[dict[str, Any]]:
        files = list(self.mount.glob("dyntrain/*/*/events.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]

    def worker_pids(self) -> dict[int, str]:
        """From the process table: worker processes of this cloud and the machine each runs on."""
        machines = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                environment = (process / "environ").read_bytes()
            except OSError:
                continue
            if TINY.encode() in words and str(self.folder).encode() in environment:
                control = re.search(rb"machines/(i-[0-9a-f]+)/", environment)
                if control:
                    machines[int(process.name)] = control.group(1).decode()
        return machines

    def processes(self) -> list[str]:
        """Whatever still carries this cloud's folder in its environment or command line."""
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            except OSError:
                continue
            if str(self.folder / "cloud").encode() in text:
                pids.append(process.name)
        return pids

    def let_it_finish(self) -> None:
        self._hold.unlink()

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = exit_code(self.process, 40, lambda: self.output()[-8000:])
        self._out.close()
        return code

    def wait_for_status(self, instance: str, *wanted: str, seconds: float, description: str) -> None:
        """As `dyntrain status` has it; asked once a second, since it costs one."""
        self.wait_for(lambda: self.node(instance).get("status") in wanted, seconds, description, pause=1.0)

    def wait_for(self, what: Callable[[], Any], seconds: float, description: str, pause: float = 0.1) -> Any:
        def look() -> Any:
            if not (value := what()):
                assert self.process.poll() is None, f"the cloud ended: {self.output()}"
            return value

        return wait_for(look, seconds, lambda: f"{description}\n{self.output()[-2000:]}", pause)
