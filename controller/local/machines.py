"""A machine as the cloud sees it: its init process, its metadata service and its root folder."""

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

from controller.local.imds import MetadataService, Tree
from controller.local.spawner import Spawner
from node_bootstrap.parentage import kill_all, with_environment

OFF_SECONDS = 5.0
_INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Place:
    """`services`: the address at which the machine finds what the cloud serves. `enter`: what is put before a command so that it runs there."""

    services: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


class Machine:
    """One boot. What runs on it gets no key and no region from its environment: they come from the metadata service, as on EC2."""

    def __init__(
        self, spawner: Spawner, root: Path, command: tuple[str, ...], endpoint: str, stop_seconds: float, metadata: Callable[[], Tree], place: Place
    ) -> None:
        self._spawner = spawner
        self.root = root
        self._command = (*command, "--root", str(root)) if command else ()
        self._endpoint = endpoint
        self._stop_seconds = stop_seconds
        self._place = place
        self._imds = MetadataService(metadata, place.services)
        self._process: subprocess.Popen[bytes] | None = None
        self._marker = ""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def console(self) -> Path:
        return self.root / "var" / "log" / "console.log"

    def start(self) -> None:
        """Raises OSError when there are no descriptors, ports or processes left."""
        url = self._imds.start()
        self._marker = f"AWS_EC2_METADATA_SERVICE_ENDPOINT={url}"
        home = self.root / "root"
        home.mkdir(parents=True, exist_ok=True)
        self.console.parent.mkdir(parents=True, exist_ok=True)
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": url,
            "AWS_ENDPOINT_URL": self._endpoint,
            "DYNTRAIN_MACHINE": "1",
        }
        options = ("--parent", str(os.getpid()), "--command", json.dumps(self._command), "--stop-seconds", str(self._stop_seconds))
        with self.console.open("ab") as console:
            self._process = self._spawner.spawn(
                (*self._place.enter, sys.executable, "-m", "controller.local.machine", *options),
                environment=environment,
                directory=None,
                stdin=subprocess.DEVNULL,
                output=console,
            )

    @property
    def on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def shut_down(self) -> None:
        """Orderly; `on` turns false within the stop time and a little."""
        self._signal(signal.SIGTERM)

    def cut_power(self) -> None:
        self._signal(signal.SIGUSR1)

    def close(self) -> None:
        """Off for good: waits for the init process, kills what is left of the machine, closes the metadata port."""
        if self._process is not None:
            self.cut_power()
            try:
                self._process.wait(OFF_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            until = time.monotonic() + OFF_SECONDS
            # Only when init itself was killed can anything be left: it is known by the metadata address in its environment.
            while (left := with_environment(self._marker)) and time.monotonic() < until:
                kill_all(left)
                time.sleep(0.01)
            self._process = None
        self._imds.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
