"""The systemd unit: nobody logs in to mend a node that systemd gave up on, or that left half of its processes behind."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from node_bootstrap.node import CONFIGURATION, RETIRED
from node_bootstrap.pacing import Timing
from node_bootstrap.processes import KILL_SECONDS

UNIT = files("node_bootstrap") / "dyntrain-node.service"


def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_unit_starts_the_node_again_unless_it_retired_or_a_person_must_act() -> None:
    assert service()["Restart"] == "on-failure"
    assert RETIRED == 0  # what systemd takes for success
    assert int(service()["RestartPreventExitStatus"]) == CONFIGURATION


def test_unit_stops_before_the_volume_and_the_log_agent_do() -> None:
    """A machine that is terminated stops both: a commit would hang on the volume, and the last lines would stay on a disk that is deleted."""
    after = [name for line in UNIT.read_text().splitlines() if line.startswith("After=") for name in line.removeprefix("After=").split()]
    assert {"network-online.target", "remote-fs.target", "amazon-cloudwatch-agent.service"} == set(after)


def test_unit_leaves_the_node_time_to_stop_in_order_and_kills_the_rest() -> None:
    """SIGTERM to a worker of its own accord would look like a crash; a grace shorter than the node's own would cut its clean-up."""
    assert service()["KillMode"] == "mixed"
    assert int(service()["TimeoutStopSec"]) > Timing().stop_grace + 4 * KILL_SECONDS


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """An unknown key is only a warning to systemd, and then without effect. Where there is no systemd, the keys are all that is checked."""
    unit = tmp_path / "dyntrain-node.service"
    unit.write_text(UNIT.read_text().replace("/opt/dyntrain/bin/python", sys.executable))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)] if shutil.which("systemd-analyze") else ["true"]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if "dyntrain-node" in line]
    assert (done.returncode, complaints) == (0, [])
