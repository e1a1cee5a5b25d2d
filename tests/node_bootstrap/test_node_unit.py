"""The systemd unit: nobody logs in to mend a node that systemd gave up on, or that left half of its processes
behind.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.processes import KILL_SECONDS
from dyntrain.node_bootstrap.node import CONFIGURATION, RETIRED

UNIT = files("dyntrain.node_bootstrap") / "dyntrain-node.service"


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
    """A machine that is terminated stops both: a commit would hang on the volume, and the last lines would stay on a
    disk that is deleted.
    """
    after = [
        name
        for line in UNIT.read_text().splitlines()
        if line.startswith("After=")
        for name in line.removeprefix("After=").split()
    ]
    assert {"network-online.target", "remote-fs.target", "amazon-cloudwatch-agent.service"} == set(after)


def test_unit_leaves_the_node_time_to_stop_in_order_and_kills_the_rest() -> None:
    """SIGTERM to a worker of its own accord would look like a crash; a grace shorter than the node's own would cut its
    clean-up.
    """
    assert service()["KillMode"] == "mixed"
    assert int(service()["TimeoutStopSec"]) > Timing().node_stop_grace_seconds + 4 * KILL_SECONDS


def test_the_user_of_the_unit_is_the_one_that_user_data_makes() -> None:
    user = re.findall(r"--user (\w+)", service()["ExecStart"])[0]
    template = (files("dyntrain.node_bootstrap") / "cluster.template.yaml").read_text()
    assert re.search(rf"useradd --uid [0-9]+ .*(\n.*)? {user};", template)
    assert f'chown {user}:{user} "$MOUNT"' in template


def test_nothing_but_the_program_speaks_to_systemd_and_often_enough() -> None:
    """A training script that could say that all is well would keep a hung program from being started again."""
    assert (service()["Type"], service()["NotifyAccess"]) == ("notify", "main")
    assert Timing().watchdog_beat_seconds * 3 < int(service()["WatchdogSec"])


def test_the_unit_keeps_what_gpus_and_training_scripts_need() -> None:
    """Each of these was left out for a reason that the unit gives; what is kept is judged on a bare machine."""
    assert {"PrivateDevices", "DeviceAllow", "MemoryDenyWriteExecute", "RestrictSUIDSGID", "PrivateTmp"}.isdisjoint(
        service()
    )
    assert service()["ExecStartPre"].startswith("-+"), (
        "it loads the driver's module, which ProtectKernelModules forbids"
    )
    assert service()["ProtectSystem"] == "yes", "the program replaces /etc/fstab and writes to /etc/profile.d"
    assert "CAP_SYS_MODULE" not in service()["CapabilityBoundingSet"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """An unknown key is only a warning to systemd, and then without effect. Where there is no systemd, the keys are all
    that is checked.
    """
    unit = tmp_path / "dyntrain-node.service"
    unit.write_text(UNIT.read_text().replace("/opt/dyntrain/bin/python", sys.executable))
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)] if shutil.which("systemd-analyze") else ["true"]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=patient(60), check=False)
    complaints = [line for line in done.stderr.splitlines() if "dyntrain-node" in line]
    assert (done.returncode, complaints) == (0, [])
