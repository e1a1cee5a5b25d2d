"""What stands for EFS: what would break for a user is a second job in the playground that finds the first one's code on
its volume, and can never prepare itself.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from dyntrain.controller.local.machines.volumes import VOLUME_PLACEHOLDER, Volumes
from local_toycloud import QUIET, ToyCloud, toy_cloud
from waiting import wait_for

PROGRAM = Path(__file__).parent / "local_machine_program.py"


def mounts(file_system: str) -> str:
    return f"#!/bin/bash\nexport MOUNT='/myEFSvolume'\nFILE_SYSTEM={file_system}\nVOLUME=of-the-stack\n"


def test_each_file_system_is_a_folder_of_its_own_and_the_first_is_the_one_that_people_know(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path)
    first, second = volumes.create_folder_for(mounts("fs-11111111")), volumes.create_folder_for(mounts("fs-22222222"))
    assert (first, second) == (tmp_path / "shared", tmp_path / "shared-fs-22222222")
    assert volumes.create_folder_for(mounts("fs-11111111")) == first, "a machine that joins finds the cluster's"
    assert volumes.create_folder_for("#!/bin/bash\n") == first
    assert second.is_dir()


def test_machines_of_two_clusters_run_with_two_volumes(tmp_path: Path) -> None:
    options = replace(
        QUIET, machines=True, machine_command=(sys.executable, str(PROGRAM), VOLUME_PLACEHOLDER), machine_stop=0.5
    )
    with toy_cloud(tmp_path, options) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        systems = ("fs-11111111", "fs-22222222", "fs-11111111")
        ids = []
        for count, system in enumerate(systems, 1):
            ids.append(toy.run_instance(UserData=mounts(system) + "python3 -m dyntrain.node_bootstrap run\n"))
            wait_for(lambda count=count: len(toy.trace("machine")) == count)
        folders = {entry["instance"]: Path(entry["command"][-1]).name for entry in toy.trace("machine")}
        assert [folders[one] for one in ids] == ["shared", "shared-fs-22222222", "shared"]
