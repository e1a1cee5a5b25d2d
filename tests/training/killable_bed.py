"""A job without any cloud whose coordinator is a process of its own (`coordinator_process.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.controller.local.pace import patient
from files_as_hosts import ENDPOINT, TARGET, write_whole
from job_bed import JobBed


class KillableBed(JobBed):
    """A bed whose coordinator is a process of its own. `options` are plain values."""

    def __init__(self, folder: Path, command: list[str], **options: Any) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(folder, command, **options)

    def start_coordinator(self) -> None:
        """As its supervisor would. Nodes find the new one once it has published its address."""
        (self.folder / ENDPOINT).unlink(missing_ok=True)
        options = {name: value for name, value in self._options.items() if name != "limits"}
        script = str(Path(__file__).parent / "coordinator_process.py")
        self._process = self.start(
            [sys.executable, script, str(self.folder), json.dumps(options)], log="coordinator.log"
        )
        published = self.wait_for(self._published, 30, "the coordinator's address")
        self.hosts.publish(CoordinatorEndpoint.model_validate(published["endpoint"]), published["token"])

    def _published(self) -> Any:
        file = self.folder / ENDPOINT
        return json.loads(file.read_text()) if file.exists() else None

    def kill_coordinator(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(patient(10))

    def want(self, letters: str, replacing: str = "") -> None:
        super().want(letters, replacing)
        assert self.hosts.target is not None
        write_whole(self.folder / TARGET, self.hosts.target.model_dump_json())

    def finish(self, seconds: float = 110.0) -> None:
        self._hold.unlink(missing_ok=True)
        assert self._process is not None
        assert self.wait_for(lambda: self._process.poll() is not None, seconds, "the job's end")
        assert self._process.returncode == 0
