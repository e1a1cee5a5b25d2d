"""Run one bare machine: `unshare --mount python -m dyntrain.controller.local.machines.bare.boot`.

This program connects the machine's network to the package registries, mounts the machine's root file system, joins new
control groups and starts systemd-nspawn, which boots the machine's systemd. All mounts are in this program's mount
namespace, so no mount outlives this program. All processes of the machine are descendants of this program, and no
descendant outlives this program. This program handles the same signals as the module `init_process`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from dyntrain.controller.local.machines import namespaces
from dyntrain.controller.local.machines.bare.stand_ins import DOWNLOAD_FOLDER, SHARED_FOLDER
from dyntrain.controller.local.machines.init_process import CLOUD_DIED_SIGNAL, HANDLED_SIGNALS, InitProcess
from dyntrain.controller.local.pace import MACHINE_NICENESS
from dyntrain.training.host.parentage import adopt_orphans, die_with_parent, ended

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWNED_GROUP_NAME = re.compile(r"dyntrain-bare-([0-9]+)$")
NAME_SERVER = "10.0.2.3"  # the name server of slirp4netns, which asks this host's name server
COMMAND_SECONDS = 30.0  # limit for a command such as mount
GROUP_REMOVAL_SECONDS = 5.0  # limit for the removal of a control group
CLOUD_END_SECONDS = 60.0  # limit for the end of a killed cloud with all its threads


def mount_root(image: Path, disk: Path) -> Path:
    """Mount the machine's root file system: an overlay of the image and of the files that this machine has written. The
    written files remain for later boots.
    """
    upper_folder, work_folder, root = disk / "upper", disk / "work", disk / "root"
    for folder in (upper_folder, work_folder, root):
        folder.mkdir(parents=True, exist_ok=True)
    overlay_options = f"lowerdir={image},upperdir={upper_folder},workdir={work_folder}"
    subprocess.run(
        ["mount", "-t", "overlay", "-o", overlay_options, "overlay", str(root)], check=True, timeout=COMMAND_SECONDS
    )
    return root


def control_group_roots() -> list[Path]:
    """The root folders of this host's control groups: one folder for version 2, or one folder for each hierarchy of
    version 1.
    """
    if (CONTROL_GROUPS / "cgroup.procs").exists():
        return [CONTROL_GROUPS]
    return [path for path in CONTROL_GROUPS.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists()]


def join_control_groups() -> list[Path]:
    """Create control groups for this process and join these groups. Each machine needs its own control groups, because
    two systemd processes in one control group would confuse each other's units.
    """
    joined_groups = []
    for group_root in control_group_roots():
        control_group = group_root / f"dyntrain-bare-{os.getpid()}"
        control_group.mkdir(exist_ok=True)
        for setting_name in ("cpuset.cpus", "cpuset.mems"):  # version 1 accepts no process before these files are set
            if group_root.name == "cpuset":
                (control_group / setting_name).write_text((group_root / setting_name).read_text())
        (control_group / "cgroup.procs").write_text(str(os.getpid()))
        joined_groups.append(control_group)
    return joined_groups


def leave_control_groups(groups: list[Path]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        remove_control_group(group)


def remove_control_group(group: Path) -> None:
    """Remove the control group and its subgroups. The removal is retried for some seconds, because ended processes may
    need a moment to leave the group.
    """
    deadline = time.monotonic() + GROUP_REMOVAL_SECONDS
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if group.exists():
            time.sleep(0.05)


def remove_abandoned_groups() -> None:
    """Remove the control groups of machines whose boot process was killed."""
    for group_root in control_group_roots():
        for group in group_root.iterdir():
            owner_match = OWNED_GROUP_NAME.match(group.name)
            if owner_match and ended(int(owner_match[1])):
                remove_control_group(group)


def nspawn_command(root: Path, arguments: argparse.Namespace) -> list[str]:
    return [
        *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
        f"--directory={root}",
        f"--machine={arguments.name}",
        f"--network-namespace-path={arguments.network}",
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only"),
        f"--bind={arguments.shared}:{SHARED_FOLDER}",
        f"--bind={arguments.downloads}:{DOWNLOAD_FOLDER}",
        f"--bind-ro={arguments.settings}:/etc/systemd/system.conf.d/50-host.conf",
        *(f"--bind-ro={path}" for path in arguments.lend),
    ]


def connect_to_registries(network: str) -> None:
    """Connect the machine's network to the package registries with slirp4netns, which needs no forwarding or firewall
    rules in this host's kernel.
    """
    boot_pid = os.getpid()
    argv = [
        "slirp4netns",
        "--netns-type=path",
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        network,
        "tap0",
    ]
    subprocess.Popen(argv, preexec_fn=lambda: die_with_parent(boot_pid), stdin=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyntrain.controller.local.machines.bare.boot")
    parser.add_argument("--parent", type=int, required=True)
    for option_name in ("image", "disk", "shared", "downloads", "settings"):
        parser.add_argument(f"--{option_name}", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--network", required=True, help="path of the machine's network namespace")
    parser.add_argument("--lend", action="append", default=[], help="path of this host that the machine sees read-only")
    parser.add_argument("--stop-seconds", type=float, required=True)
    arguments = parser.parse_args()
    connect_to_registries(arguments.network)  # before the signals are blocked: slirp4netns would inherit this
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    os.nice(MACHINE_NICENESS)
    adopt_orphans()
    die_with_parent(arguments.parent, CLOUD_DIED_SIGNAL)
    root = mount_root(arguments.image, arguments.disk)
    (root / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
    joined_groups = join_control_groups()
    try:
        # systemd-nspawn ends with 0 when the system inside has switched itself off
        init_process = InitProcess(
            nspawn_command(root, arguments), arguments.stop_seconds, lambda nspawn_exit_code: nspawn_exit_code == 0
        )
        exit_code = init_process.run()
    finally:
        leave_control_groups(joined_groups)
    if init_process.cloud_gone or CLOUD_DIED_SIGNAL in signal.sigpending():  # the cloud was killed before its clean-up
        ended(arguments.parent, CLOUD_END_SECONDS)
        namespaces.remove_abandoned_networks()
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
