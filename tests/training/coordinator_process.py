"""A coordinator in a process of its own, that can be killed: its hosts are files, which a test writes and reads.

python coordinator_process.py FOLDER '{"workers": 2, ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.layout import JobFolder
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does for what the beds share

from files_as_hosts import FilesAsHosts
from job_bed import BED, instance


def main() -> None:
    folder = Path(sys.argv[1])
    options = Options(**BED, started_at=1.0, limits=Limits(1, 8), **json.loads(sys.argv[2]))
    asyncio.run(
        Coordinator(options, JobFolder.of(folder, **BED), FilesAsHosts(folder), "127.0.0.1", instance("A")).run()
    )


if __name__ == "__main__":
    main()
