"""A coordinator's hosts as files in a folder, which whoever started it writes and reads."""

from __future__ import annotations

import json
from pathlib import Path

from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target
from dyntrain.controller.contract.reports import JobReport

TARGET, ENDPOINT = "target.json", "endpoint.json"


class FilesAsHosts:
    def __init__(self, folder: Path) -> None:
        self._target, self._endpoint = folder / TARGET, folder / ENDPOINT

    def read_target(self) -> Target | None:
        return Target.model_validate_json(self._target.read_text()) if self._target.exists() else None

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        write_whole(self._endpoint, json.dumps({"endpoint": endpoint.model_dump(mode="json"), "token": token}))

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        if not self._endpoint.exists():
            return None
        return CoordinatorEndpoint.model_validate(json.loads(self._endpoint.read_text())["endpoint"])

    def report(self, report: JobReport) -> None:
        """To nobody: what it would say is looked for in the job's events."""


def write_whole(file: Path, text: str) -> None:
    """Whoever reads meanwhile has what was there before."""
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").rename(file)
