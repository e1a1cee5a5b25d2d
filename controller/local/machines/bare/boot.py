"""One bare machine: `unshare --mount python -m dyntrain.controller.local.machines.bare.boot`.

The common root below an overlay of the machine's own, its own control groups, a way out to the registries, and
systemd-nspawn, whose systemd is the machine's. All mounts are in this process's mount namespace, and all processes
below this one, so nothing outlives it. The signals are those of `init_process`.
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
from dyntrain.controller.local.pace import BEHIND_THE_CLOUD
from dyntrain.training.host.parentage import adopt_orphans, die_with_parent, ended

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWNED = re.compile(r"dyntrain-bare-([0-9]+)$")
RESOLVER = "10.0.2.3"  # of slirp4netns, which asks this host's
COMMAND_SECONDS = 30.0
EMPTY_SECONDS = 5.0
GONE_SECONDS = 60.0  # for a cloud that was killed to end with all its threads


def mount_root(image: Path, disk: Path) -> Path:
    """Mount the machine's root: the image below what this machine has written, which a later boot finds again."""
    upper, work, root = disk / "upper", disk / "work", disk / "root"
    for folder in (upper, work, root):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={image},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(root)], check=True, timeout=COMMAND_SECONDS)
    return root


def hierarchies() -> list[Path]:
    """The hierarchies of control groups: the one of version 2, or each of version 1."""
    if (CONTROL_GROUPS / "cgroup.procs").exists():
        return [CONTROL_GROUPS]
    return [path for path in CONTROL_GROUPS.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists()]


def join_control_groups() -> list[Path]:
    """Create and join groups of this process's own: two systemds in one group would take each other's units for
    theirs.
    """
    groups = []
    for hierarchy in hierarchies():
        group = hierarchy / f"dyntrain-bare-{os.getpid()}"
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # version 1 takes no process before these are set
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
    """Remove the group with those below it; processes that just ended may need a moment to leave."""
    until = time.monotonic() + EMPTY_SECONDS
    while group.exists() and time.monotonic() < until:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if group.exists():
            time.sleep(0.05)


def sweep() -> None:
    """Remove control groups of machines that were killed."""
    for hierarchy in hierarchies():
        for group in hierarchy.iterdir():
            owned = OWNED.match(group.name)
            if owned and ended(int(owned[1])):
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


def way_out(network: str) -> None:
    """Connect the machine to the registries, in user space: no forwarding and no rules in this host's kernel."""
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
    parser.add_argument("--lend", action="append", default=[], help="a path of this host, read-only")
    parser.add_argument("--stop-seconds", type=float, required=True)
    arguments = parser.parse_args()
    way_out(arguments.network)  # before the signals are blocked, which it would inherit
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.nice(BEHIND_THE_CLOUD)
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
