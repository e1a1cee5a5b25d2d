"""A newcomer's own script in the playground: `dyntrain local up -- python train.py`, as README and help have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dyntrain.controller.local.machines.namespaces import available
from local_up import LocalUp

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
TRAIN = """
import json, os, helper
with open("found.part", "w") as found:
    json.dump({"here": os.getcwd(), "rows": helper.rows()}, found)
os.rename("found.part", "found.json")
raise KeyError("label")
"""


@pytest.mark.parametrize("machines", [(), ("--namespaces",)], ids=["plain", "namespaces"])
def test_a_command_runs_in_the_persons_folder(machines: tuple[str, ...], tmp_path: Path) -> None:
    """It ran in the cloud's volume, failed there for want of train.py."""
    if machines and not available():
        pytest.skip("network namespaces want root and iproute2")
    project = tmp_path / "my project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "helper.py").write_text("def rows():\n    return open('data.csv').read().split(',')\n")
    (project / "data.csv").write_text("1,2,3")
    up = LocalUp(tmp_path, "--base-workers", "0", *machines, script=["python", "train.py"], here=project)
    try:
        up.wait_for(lambda: (project / "found.json").exists(), 60, "the script has run")
    finally:
        assert up.interrupt() == 0
    found = json.loads((project / "found.json").read_text())
    assert found == {"here": str(project), "rows": ["1", "2", "3"]}
