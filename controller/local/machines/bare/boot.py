"""Run one bare machine: `unshare --mount python -m dyntrain.controller.local.machines.bare.boot`.

This process mounts an overlay over the shared root, joins new control groups, connects the machine to the package
registries and starts systemd-nspawn, which boots the machine's systemd. All mounts are in this process's mount
namespace, and all processes of the machine are its descendants, so nothing outlives it. This process handles the same
signals as `init_process`.
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
from dyntrain.controller.local.machines.bare.stand_ins import DOWNLOADS, SHARED
from dyntrain.controller.local.machines.init_process import CLOUD_GONE, SIGNALS, Init
from dyntrain.controller.local.pace import MACHINE_NICENESS
from dyntrain.training.host.parentage import adopt_orphans, die_with_parent, ended

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWNED_NAME = re.compile(r"dyntrain-bare-([0-9]+)$")
RESOLVER = "10.0.2.3"  # the name server of slirp4netns, which asks this host's name server
COMMAND_SECONDS = 30.0
EMPTY_SECONDS = 5.0
GONE_SECONDS = 60.0  # limit for the end of a killed cloud with all its threads


def mount_root(image: Path, disk: Path) -> Path:
    """Mount the machine's root: an overlay of the image and of the files that this machine wrote. A later boot keeps
    these files.
    """
    upper, work, root = disk / "upper", disk / "work", disk / "root"
    for folder in (upper, work, root):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={image},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(root)], check=True, timeout=COMMAND_SECONDS)
    return root


def hierarchies() -> list[Path]:
    """The root folders of control groups: one for version 2, or one for each hierarchy of version 1."""
    if (CONTROL_GROUPS / "cgroup.procs").exists():
        return [CONTROL_GROUPS]
    return [path for path in CONTROL_GROUPS.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists()]


def join_control_groups() -> list[Path]:
    """Create control groups for this process and join them. Two systemd processes in one group would confuse each
    other's units.
    """
    groups = []
    for hierarchy in hierarchies():
        group = hierarchy / f"dyntrain-bare-{os.getpid()}"
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # version 1 accepts no process before these files are set
            if hierarchy.name == "cpuset":
                (group / name).write_text((hierarchy / name).read_text())
        (group / "cgroup.procs").write_text(str(os.getpid()))
        groups.append(group)
    return groups


def leave_control_groups(groups: list[Path]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        remove_control_group(group)


def remove_control_group(group: Path) -> None:
    """Remove the group and its subgroups. Retries for some seconds, because ended processes may need a moment
    to leave.
    """
    deadline = time.monotonic() + EMPTY_SECONDS
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if group.exists():
            time.sleep(0.05)


def sweep() -> None:
    """Remove control groups of machines that were killed."""
    for hierarchy in hierarchies():
        for group in hierarchy.iterdir():
            owner_match = OWNED_NAME.match(group.name)
            if owner_match and ended(int(owner_match[1])):
                remove_control_group(group)


def nspawn(root: Path, arguments: argparse.Namespace) -> list[str]:
    return [
        *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
        f"--directory={root}",
        f"--machine={arguments.name}",
        f"--network-namespace-path={arguments.network}",
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only"),
        f"--bind={arguments.shared}:{SHARED}",
        f"--bind={arguments.downloads}:{DOWNLOADS}",
        f"--bind-ro={arguments.settings}:/etc/systemd/system.conf.d/50-host.conf",
        *(f"--bind-ro={path}" for path in arguments.lend),
    ]


def connect_to_registries(network: str) -> None:
    """Connect the machine to the package registries, in user space: without forwarding or firewall rules in this host's
    kernel.
    """
    parent = os.getpid()
    argv = [
        "slirp4netns",
        "--netns-type=path",
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        network,
        "tap0",
    ]
    subprocess.Popen(argv, preexec_fn=lambda: die_with_parent(parent), stdin=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="dyntrain.controller.local.machines.bare.boot")
    parser.add_argument("--parent", type=int, required=True)
    for name in ("image", "disk", "shared", "downloads", "settings"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--network", required=True, help="path of the machine's network namespace")
    parser.add_argument("--lend", action="append", default=[], help="path of this host that the machine sees read-only")
    parser.add_argument("--stop-seconds", type=float, required=True)
    arguments = parser.parse_args()
    connect_to_registries(arguments.network)  # before the signals are blocked: slirp4netns would inherit this
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.nice(MACHINE_NICENESS)
    adopt_orphans()
    die_with_parent(arguments.parent, CLOUD_GONE)
    root = mount_root(arguments.image, arguments.disk)
    (root / "etc/resolv.conf").write_text(f"nameserver {RESOLVER}\n")
    groups = join_control_groups()
    try:
        # systemd-nspawn ends with 0 when the system inside has switched itself off
        init = Init(nspawn(root, arguments), arguments.stop_seconds, lambda code: code == 0)
        code = init.run()
    finally:
        leave_control_groups(groups)
    if init.cloud_gone or CLOUD_GONE in signal.sigpending():  # the cloud was killed before it could clean up
        ended(arguments.parent, GONE_SECONDS)
        namespaces.sweep()
    sys.exit(code)


if __name__ == "__main__":
    main()
