"""A plain machine of the embedded cloud: an init process with its descendants, a metadata service and a root folder."""

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

from dyntrain.controller.local.machines.imds import MetadataService, MetadataTree
from dyntrain.controller.local.machines.init_process import OFF_BY_ITSELF_EXIT_CODE
from dyntrain.controller.local.spawner import Spawner
from dyntrain.training.host.parentage import kill_all, with_environment

POWER_OFF_SECONDS = 5.0  # limit for the end of a machine's processes
# no variable that changes where Python finds modules
_INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class MachinePlace:
    """The place where a machine runs: this host or a network namespace. The function `tokens_required` says whether the
    metadata service answers only requests with a token (IMDSv2).
    """

    services: str = "127.0.0.1"  # the address of the cloud's services for this machine
    argv_prefix: tuple[str, ...] = ()  # prefix of a command that runs in this place
    tokens_required: Callable[[], bool] = lambda: True  # whether requests for metadata need a token


class Machine:
    """One boot of a machine, from power-on to power-off. As on EC2, the machine's programs get credentials and region
    from the metadata service, not from the environment.
    """

    def __init__(
        self,
        spawner: Spawner,
        root: Path,
        command: tuple[str, ...],
        endpoint: str,
        stop_seconds: float,
        metadata: Callable[[], MetadataTree],
        place: MachinePlace,
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
        self._environment_mark = ""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def console_path(self) -> Path:
        return self.root / "var" / "log" / "console.log"

    def start(self) -> None:
        """Boot the machine. Raises OSError when this host has no file descriptors, ports or processes left."""
        metadata_url = self._imds.start()
        home_folder = self.root / "root"
        home_folder.mkdir(parents=True, exist_ok=True)
        environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ} | {
            "HOME": str(home_folder),
            "PATH": os.pathsep.join([*self._programs, os.environ.get("PATH", os.defpath)]),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
            "AWS_ENDPOINT_URL": self._endpoint,
            "DYNTRAIN_MACHINE": "1",
        }
        init_options = (
            "--parent",
            str(os.getpid()),
            "--command",
            json.dumps(self._command),
            "--stop-seconds",
            str(self._stop_seconds),
            *(("--off-with-program",) if self._off_with_program else ()),
        )
        init_command = (sys.executable, "-m", "dyntrain.controller.local.machines.init_process", *init_options)
        self._start_init_process(
            (*self._place.argv_prefix, *init_command), environment, f"AWS_EC2_METADATA_SERVICE_ENDPOINT={metadata_url}"
        )

    def _start_init_process(self, argv: tuple[str, ...], environment: dict[str, str], environment_mark: str) -> None:
        """Start the machine's init process, whose output goes to the console log. `environment_mark` is an environment
        entry NAME=VALUE that only this machine's processes have.
        """
        self._environment_mark = environment_mark
        self.console_path.parent.mkdir(parents=True, exist_ok=True)
        with self.console_path.open("ab") as console_log:
            self._process = self._spawner.spawn(
                argv, environment=environment, directory=self.root, stdin=subprocess.DEVNULL, output=console_log
            )

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def switched_itself_off(self) -> bool:
        """Whether the machine switched itself off, as by `poweroff`. The result is False if the machine ended
        otherwise, as by a kernel panic or a killed init process.
        """
        return self._process is not None and self._process.poll() == OFF_BY_ITSELF_EXIT_CODE

    def shut_down(self) -> None:
        """Ask the machine's init process to shut down. `is_on` becomes false when the machine is off, at the latest
        shortly after `stop_seconds`.
        """
        self._signal_init_process(signal.SIGTERM)

    def cut_power(self) -> None:
        self._signal_init_process(signal.SIGUSR1)

    def close(self) -> None:
        """Switch the machine off: wait until the init process has ended, kill remaining processes, and close the port
        of the metadata service.
        """
        if self._process is not None:
            self.cut_power()
            try:
                self._process.wait(POWER_OFF_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            deadline = time.monotonic() + POWER_OFF_SECONDS
            # Processes remain only if the init process was killed; the marker in their environment identifies them.
            while (remaining_pids := with_environment(self._environment_mark)) and time.monotonic() < deadline:
                kill_all(remaining_pids)
                time.sleep(0.01)
            self._process = None
        self._imds.stop()

    def _signal_init_process(self, signal_number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal_number)
