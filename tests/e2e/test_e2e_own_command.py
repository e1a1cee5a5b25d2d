"""A newcomer's own script in the playground: `dyntrain local up -- python train.py`, as README and help have it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from dyntrain.controller.local.machines.namespaces import namespaces_available
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
def test_a_command_runs_in_the_persons_folder_and_its_failure_reaches_the_terminal(
    machines: tuple[str, ...], tmp_path: Path
) -> None:
    """It ran in the cloud's volume, failed there for want of train.py, and the terminal did not say a word."""
    if machines and not namespaces_available():
        pytest.skip("network namespaces want root and iproute2")
    project = tmp_path / "my project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "helper.py").write_text("def rows():\n    return open('data.csv').read().split(',')\n")
    (project / "data.csv").write_text("1,2,3")
    up = LocalUp(tmp_path, "--base-workers", "0", *machines, script=["python", "train.py"], here=project)
    try:
        up.wait_for(lambda: "the job failed" in up.output(), 60, "the terminal tells that the job failed")
        up.wait_for(lambda: "the job failed" in up.dyntrain("status").stdout, 30, "status tells it, too", pause=1.0)
        status = up.dyntrain("status").stdout
    finally:
        assert up.interrupt() == 0
    result = json.loads((project / "found.json").read_text())
    assert result == {"here": str(project), "rows": ["1", "2", "3"]}
    _, _, story = up.output().partition("leaves nothing behind.\n")
    assert "export" in up.output().partition("Ctrl-C ends")[0]
    assert len(re.findall(r'File ".*train.py", line 6, in <module>', story)) == 1, "what a script said is told once"
    last = [line for line in story.splitlines() if "job failed" in line][-1]
    assert "KeyError: 'label'" in last
    log = Path(re.findall(r"its log: (.+)", last)[0])
    assert "KeyError: 'label'" in log.read_text()
    assert "this one failed: no worker could start" in status, "its nodes say so"
    *_, last = status.rstrip().splitlines()
    assert "KeyError: 'label'" in last
    assert last.endswith(f"its log: {log}"), "found by the pasted lines"


def test_a_job_that_is_over_takes_nobody_says_so_and_begins_again(tmp_path: Path) -> None:
    """`dyntrain add` said that all was well, and what it launched was ended in its first minute."""
    up = LocalUp(tmp_path, "--base-workers", "0", epochs=3)
    up.let_it_finish()
    try:
        up.wait_for(lambda: "the job has finished" in up.output(), 60, "the terminal tells that the job has finished")
        up.wait_for(lambda: "is over" in up.dyntrain("add", "demo").stderr, 30, "the controller knows it", pause=1.0)
        before = up.instances()
        for command in (("add", "demo"), ("scale", "demo", "2"), ("add", "demo", "--instance", next(iter(before)))):
            refused = up.dyntrain(*command)
            assert refused.returncode == 1
            assert "is over: `dyntrain cluster restart demo` starts the job again" in refused.stderr
        up.wait_for(lambda: up.dyntrain("cluster", "restart", "demo").returncode == 0, 60, "it may begin", pause=1.0)
        up.wait_for(lambda: "another job begins" in up.output(), 60, "it begins")
        up.wait_for(lambda: up.output().count("the job has finished") == 2, 60, "and trains")
        assert up.instances() == before, "nothing was launched"
        assert len(list(up.mount.glob("dyntrain/demo/job-*"))) == 2
    finally:
        assert up.interrupt() == 0
