"""E2: forty seconds of faults of every kind, while people change the cluster; then everything is as they wished, and no
sample was lost.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from local_up import DYNTRAIN


@pytest.mark.e2e
@pytest.mark.timeout(480)
def test_e2_after_many_faults_everything_is_as_wished(tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    place = ("--directory", str(tmp_path / "cloud"))  # which stays when the hunt does not end well
    argv = [DYNTRAIN, "local", "chaos", "--duration", "40", "--seed", "2", "--report", str(written), *place]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(450), check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    report = json.loads(written.read_text())
    assert (report["samples_lost"], report["samples_doubled"], report["stuck"], report["orphans"]) == (0, 0, [], [])
    assert report["changes"] > 0
    assert sum(report["faults"].values()) > 10
