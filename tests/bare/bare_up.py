"""`dyntrain local up --machines bare` as a person runs it, and a look into its machines."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from dyntrain.controller.local.pace import patient
from dyntrain.controller.local.stack import PYTHON
from dyntrain.training.host.parentage import descendants
from local_up import DYNTRAIN, TINY, LocalUp

UNIT = "dyntrain-node.service"
WHEELS = Path("build/bare/wheel")
BOOT_SECONDS = 600  # the common root, when it has to be made, and more


class BareUp(LocalUp):
    """A master; no base workers. The job's steps are slow until `let_it_finish`."""

    def __init__(self, folder: Path) -> None:
        wheels = list(WHEELS.glob("*.whl"))
        assert len(wheels) == 1, f"not one wheel in {WHEELS}: run the tests with `make bare`"
        self.folder = folder
        self.mount.mkdir(parents=True)
        shutil.copy(TINY, self.mount)
        self._hold = self.mount / "hold"
        self._hold.touch()
        self._out = (folder / "up.out").open("wb")
        script = [PYTHON, Path(TINY).name, "--epochs", "400", "--hold", "hold"]
        argv = [DYNTRAIN, "local", "up", "--port", "0", "--directory", str(folder / "cloud"), "--base-workers", "0"]
        argv += ["--machines", "bare", "--wheel", str(wheels[0]), "--", *script, "--step-seconds", "0.3"]
        self.process = subprocess.Popen(
            argv, stdout=self._out, stderr=subprocess.STDOUT, start_new_session=True, env=self._plain_environment()
        )
        self.wait_for(lambda: "Ctrl-C ends" in self.output(), BOOT_SECONDS, "the command prints how to use the cloud")
        self.variables = dict(re.findall(r"(AWS_\w+)=(\S+)", self.output()))
        self.template = re.findall(r"launch template +(\S+)", self.output())[0]
        self.group = re.findall(r"group +(\S+)", self.output())[0]

    @property
    def master(self) -> str:
        groups = self.aws("autoscaling", "describe-auto-scaling-groups")["AutoScalingGroups"]
        return next(str(group["Instances"][0]["InstanceId"]) for group in groups if group["Instances"])

    def trace(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / "cloud" / "logs" / "trace.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == kind]

    def init(self, instance: str) -> int | None:
        """The machine's systemd as this host numbers it; None while there is none."""
        boot = [line["pid"] for line in self.trace("machine") if line["instance"] == instance][-1]
        for pid in descendants(boot):
            try:
                numbers = re.findall(r"^NSpid:\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M)[0].split()
            except (OSError, IndexError):
                continue
            if len(numbers) > 1 and numbers[-1] == "1":
                return pid
        return None

    def inside(self, instance: str, *command: str) -> str:
        """What the command prints on the machine; "" when it cannot run there, now or at all."""
        pid = self.init(instance)
        if pid is None:
            return ""
        argv = ["nsenter", "--target", str(pid), "--all", "--", *command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(60), check=False)
        return done.stdout.strip()

    def console(self, instance: str) -> str:
        return (self.folder / "cloud/machines" / instance / "var/log/console.log").read_text("utf-8", "replace")

    def wait_inside(self, instance: str, wanted: str, *command: str, seconds: float) -> None:
        """Asked once a second. Says what the console said last when it does not come."""
        try:
            self.wait_for(lambda: self.inside(instance, *command) == wanted, seconds, " ".join(command), pause=1.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\nconsole of {instance}: {self.console(instance)[-4000:]}") from None
