"""What some tests need of the machine beside Python: markers name it, and tests that lack it are skipped and named at
the end, with the command that would bring it.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from dyntrain.controller.local.chaos.volume import UNSHARE_MOUNTS
from dyntrain.controller.local.machines.namespaces import Namespaces, NamespacesUnavailable

PROBE_SECONDS = 180.0  # of what makes a file system, on a machine that is busy with other things
SBIN = "/usr/sbin:/sbin"  # not on everybody's PATH


def sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ['PATH']}:{SBIN}")


def _no_openssh() -> str:
    """A service's account cannot log in anywhere, whatever is installed."""
    if not (sshd() and shutil.which("ssh") and shutil.which("ssh-keygen")):
        return "no OpenSSH server and client"
    try:
        account = pwd.getpwuid(os.geteuid())
    except KeyError:
        return f"user {os.geteuid()} has no account"
    if Path(account.pw_shell).name in ("nologin", "false"):
        return f"{account.pw_name} may not log in: the shell is {account.pw_shell}"
    return ""


def _no_hosts() -> str:
    """Root in a container may be without the right to make them: only trying tells."""
    network = Namespaces()
    try:
        network.start()
        network.command_prefix("probe", network.addresses[0])
    except (NamespacesUnavailable, OSError) as error:
        return str(error)
    finally:
        if shutil.which("ip"):
            network.stop()
    return ""


def chromium() -> str | None:
    return shutil.which("chromium")


@dataclass(frozen=True)
class Need:
    """`lack` says why it is not there, or ""; `otherwise` is what to do when the packages are there."""

    what: str
    packages: tuple[str, ...]
    lack: Callable[[], str]
    otherwise: str = "run the tests as root; in a container, with the capabilities NET_ADMIN and SYS_ADMIN"

    def bring(self) -> str:
        """What a person would do about it."""
        if all(shutil.which(program, path=f"{os.environ['PATH']}:{SBIN}") for program in PROGRAMS[self.packages]):
            return self.otherwise
        command = f"apt-get install -y {' '.join(self.packages)}"
        return command if os.geteuid() == 0 else f"sudo {command}"


def _no_volume() -> str:
    """Whether a file system in a file can be mounted: a container may lack loop devices."""
    probe = (
        "import sys; from pathlib import Path; from dyntrain.controller.local.chaos.volume import *; "
        "record_own_namespace(); volume = HangingVolume(Path(sys.argv[1], 'v'))\n"
        "try:\n    volume.create_and_mount()\nexcept VolumeUnavailable as error:\n    print(error)\nvolume.close()"
    )
    with tempfile.TemporaryDirectory() as folder:
        alone = [*UNSHARE_MOUNTS, sys.executable, "-c", probe, folder]
        try:
            done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS)
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            return str(error)
        return (done.stdout + done.stderr).strip()


DYNALITE = Path(__file__).parents[1] / "build" / "tools" / "dynalite" / "node_modules" / "dynalite" / "cli.js"


def _no_dynalite() -> str:
    return "" if DYNALITE.exists() and shutil.which("node") else "it is not below build/tools"


PROGRAMS = {
    ("nodejs", "npm"): ("node", "npm"),
    ("iproute2",): ("ip",),
    ("e2fsprogs", "util-linux", "mount"): ("mkfs.ext4", "fsfreeze", "mount"),
    ("chromium",): ("chromium",),
    ("openssh-server", "openssh-client"): ("sshd", "ssh", "ssh-keygen"),
}
NEEDS = {
    "browser": Need("a browser", ("chromium",), lambda: "" if chromium() else "no Chromium"),
    "hosts": Need("several hosts as network namespaces", ("iproute2",), functools.cache(_no_hosts)),
    "volume": Need(
        "a file system that can be frozen", ("e2fsprogs", "util-linux", "mount"), functools.cache(_no_volume)
    ),
    "dynalite": Need("a second DynamoDB", ("nodejs", "npm"), functools.cache(_no_dynalite), otherwise="make witnesses"),
    "openssh": Need(
        "a real sshd, and ssh to log in with",
        ("openssh-server", "openssh-client"),
        functools.cache(_no_openssh),
        otherwise="run the tests as a user who has an account with a shell",
    ),
}


def skip_what_lacks_something(item: pytest.Item) -> None:
    for name, need in NEEDS.items():
        if item.get_closest_marker(name) and (why := need.lack()):
            item.user_properties.append(("lacks", name))
            pytest.skip(f"needs {need.what}: {why}")


def name_what_was_skipped(terminal: pytest.TerminalReporter) -> None:
    """The reports may come from other processes, so they carry what the test lacked."""
    lacking: dict[str, list[str]] = {}
    for report in terminal.stats.get("skipped", []):
        for name in (value for key, value in report.user_properties if key == "lacks"):
            lacking.setdefault(str(name), []).append(report.nodeid)
    for name, tests in lacking.items():
        terminal.section(f"{len(tests)} tests need {NEEDS[name].what}", sep="-")
        terminal.write_line(f"To run them too: {NEEDS[name].bring()}")
        for test in tests:
            terminal.write_line(f"  {test}")
