"""A coordinator in a process of its own, that can be killed: its hosts are files, which a test writes and reads.

python coordinator_process.py FOLDER '{"workers": 2, ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from job_bed import BED, instance

from controller.contract import CoordinatorEndpoint, JobReport, Target
from training.coordinator import Coordinator
from training.generation import Limits
from training.knowledge import Options
from training.layout import JobFolder

TARGET, ENDPOINT = "target.json", "endpoint.json"


class FilesAsHosts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_target(self) -> Target | None:
        file = self._folder / TARGET
        return Target.model_validate_json(file.read_text()) if file.exists() else None

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        file = self._folder / ENDPOINT
        file.with_suffix(".new").write_text(json.dumps({"endpoint": endpoint.model_dump(mode="json"), "token": token}))
        file.with_suffix(".new").rename(file)

    def published(self) -> CoordinatorEndpoint | None:
        file = self._folder / ENDPOINT
        return CoordinatorEndpoint.model_validate(json.loads(file.read_text())["endpoint"]) if file.exists() else None

    def report(self, report: JobReport) -> None:
        pass


def main() -> None:
    folder = Path(sys.argv[1])
    options = Options(**BED, started_at=1.0, limits=Limits(1, 8), **json.loads(sys.argv[2]))
    asyncio.run(Coordinator(options, JobFolder.of(folder, **BED), FilesAsHosts(folder), "127.0.0.1", instance("A")).run())


if __name__ == "__main__":
    main()
