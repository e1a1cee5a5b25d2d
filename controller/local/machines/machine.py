"""A plain machine is a process: it has an init process, a metadata service and a root folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.local.machines.imds import MetadataService, Tree
from dyntrain.controller.local.machines.init_process import OFF_BY_ITSELF
from dyntrain.controller.local.spawner import Spawner
from dyntrain.training.host.parentage import kill_all, with_environment

OFF_SECONDS = 5.0
# no variable that changes where Python finds modules
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Place:
    """The place where a machine runs. `services`: the address of the cloud's services for this machine. `enter`: the
    prefix of a command that runs in the place. `tokens_required`: whether the metadata service answers only version 2.
    """

    services: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    tokens_required: Callable[[], bool] = lambda: True


class Machine:
    """One boot of a machine. As on EC2, the machine's programs get credentials and region from the metadata service,
    not from the environment.
    """

    def __init__(
        self,
        spawner: Spawner,
        root: Path,
        command: tuple[str, ...],
        endpoint: str,
        stop_seconds: float,
        metadata: Callable[[], Tree],
        place: Place,
        off_with_program: bool = False,
    ) -> None:
        self._spawner = spawner
        self._off_with_program = off_with_program
        self.root = root
        self._command = (*command, "--root", str(root)) if command else ()
        # first in PATH, so that `python` is the machine's interpreter
        self._programs = [str(Path(command[0]).parent)] if command else []
        self._endpoint = endpoint
        self._stop_seconds = stop_seconds
        self._place = place
        self._imds = MetadataService(metadata, place.services, tokens_required=place.tokens_required)
        self._process: subprocess.Popen[bytes] | None = None
        self._marker = ""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def console(self) -> Path:
        return self.root / "var" / "log" / "console.log"

    def start(self) -> None:
        """Boot the machine. Raises OSError when no descriptors, ports or processes are left."""
        url = self._imds.start()
        home = self.root / "root"
        home.mkdir(parents=True, exist_ok=True)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "HOME": str(home),
            "PATH": os.pathsep.join([*self._programs, os.environ.get("PATH", os.defpath)]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
            "AWS_ENDPOINT_URL": self._endpoint,
            "DYNTRAIN_MACHINE": "1",
        }
        options = (
            "--parent",
            str(os.getpid()),
            "--command",
            json.dumps(self._command),
            "--stop-seconds",
            str(self._stop_seconds),
            *(("--off-with-program",) if self._off_with_program else ()),
        )
        init = (sys.executable, "-m", "dyntrain.controller.local.machines.init_process", *options)
        self._power_up((*self._place.enter, *init), environment, f"AWS_EC2_METADATA_SERVICE_ENDPOINT={url}")

    def _power_up(self, argv: tuple[str, ...], environment: dict[str, str], marker: str) -> None:
        """Start the init process. `marker` is an entry of the environment that only this machine's processes have."""
        self._marker = marker
        self.console.parent.mkdir(parents=True, exist_ok=True)
        with self.console.open("ab") as console:
            self._process = self._spawner.spawn(
                argv, environment=environment, directory=self.root, stdin=subprocess.DEVNULL, output=console
            )

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def switched_itself_off(self) -> bool:
        """Whether the machine switched itself off, as by `poweroff`, and did not end by a kernel panic or a killed init
        process.
        """
        return self._process is not None and self._process.poll() == OFF_BY_ITSELF

    def shut_down(self) -> None:
        """Ask the machine's init process to shut down. `is_on` turns false at the latest soon after the stop time."""
        self._signal(signal.SIGTERM)

    def cut_power(self) -> None:
        self._signal(signal.SIGUSR1)

    def close(self) -> None:
        """Switch the machine off: wait for the init process, kill remaining processes, and close the metadata port."""
        if self._process is not None:
            self.cut_power()
            try:
                self._process.wait(OFF_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            deadline = time.monotonic() + OFF_SECONDS
            # Processes remain only if the init process was killed; the marker in their environment identifies them.
            while (remaining := with_environment(self._marker)) and time.monotonic() < deadline:
                kill_all(remaining)
                time.sleep(0.01)
            self._process = None
        self._imds.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
