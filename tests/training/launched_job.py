"""`python -m dyntrain.training.launch` as a process, what it left behind, and an sshd for it."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dyntrain.controller.local.pace import Deadline, paced, patient
from surroundings import sshd
from waiting import wait_for

TINY = str(Path(__file__).parent / "tiny_job.py")
ROOT = Path(__file__).parents[2]


class Launched:
    """A launcher in a directory of its own; its steps are slow until `go`."""

    def __init__(
        self, folder: Path, *options: str, environment: dict[str, str] | None = None, script: Sequence[str] = ()
    ) -> None:
        self.folder, self.hold = folder, folder / "hold"
        folder.mkdir(exist_ok=True)
        self.hold.touch()
        self._log = (folder / "log").open("wb")
        # On a slow host what is tried takes longer: the job must not be over before.
        slow = ("--hold", str(self.hold), "--step-seconds", str(paced(0.2)))
        command = [sys.executable, TINY, "--epochs", "80", *slow, *script]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dyntrain.training.launch",
                *options,
                "--env",
                "OMP_NUM_THREADS:1",
                "--env",
                "PYTHONPATH",
                *command,
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        def look() -> bool:
            matched = re.search(pattern, self.log) is not None
            assert matched or self.process.poll() is None, self.log[-3000:]
            return matched

        wait_for(look, seconds, lambda: f"{pattern!r} in\n{self.log[-3000:]}", pause=0.05)

    def edit(self, *hosts: str) -> None:
        (self.folder / "host_worker").write_text("".join(f"{host}\n" for host in hosts))

    def go(self) -> int:
        self.hold.unlink()
        return self.process.wait(patient(60))

    def pids(self, command: str, folder: Path | None = None) -> list[int]:
        """Of the processes that work in the job's folder, or another, and have `command` in their command line."""
        pids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                here = entry.name.isdigit() and (entry / "cwd").resolve() == (folder or self.folder).resolve()
                if here and command in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    pids.append(int(entry.name))
        return pids

    def ended(self, folder: Path | None = None, seconds: float = 20.0) -> list[int]:
        """Which processes are left when all should have ended."""
        deadline = Deadline(seconds)
        while (left := self.pids("", folder)) and not deadline.passed():
            time.sleep(0.05)
        return left

    def ports(self) -> set[tuple[str, str]]:
        """Where the job's processes listen: the addresses of `listening`, with their sockets."""
        sockets = set()
        for pid in self.pids(""):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(descriptor))
        return {(address, inode) for address, inode in listening() if f"socket:[{inode}]" in sockets}

    def events(self, name: str) -> list[dict[str, Any]]:
        """Of a job that was told `--events events.jsonl`."""
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def formed(self) -> list[int]:
        """How many workers each generation had; likewise."""
        return [len(event["members"]) for event in self.events("formed")]

    def wait_for_formed(self, *workers: int, seconds: float = 120.0) -> None:
        wait_for(lambda: self.formed() == list(workers), seconds, lambda: f"{workers} in {self.formed()}", pause=0.1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(patient(10))
        self._log.close()


def listening() -> set[tuple[str, str]]:
    """Address and socket number of every listener on this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {(row[1], row[9]) for row in rows if row[3] == "0A"}


@contextlib.contextmanager
def ssh_server(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A real sshd on a port and with keys of its own, and `ssh` on PATH told of them."""
    daemon, client = sshd(), shutil.which("ssh")
    assert daemon, "the test is not marked `openssh`"
    assert client, "the test is not marked `openssh`"
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "user.pub").rename(tmp_path / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it for its unprivileged half; its package makes it at boot
    options = {
        "Port": port, "ListenAddress": "0.0.0.0", "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password", "PidFile": "none",
    }  # fmt: skip
    (tmp_path / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    (tmp_path / "ssh_config").write_text(
        f"Host *\n Port {port}\n User {getpass.getuser()}\n IdentityFile {tmp_path / 'user'}\n IdentitiesOnly yes\n"
        f" StrictHostKeyChecking no\n UserKnownHostsFile {tmp_path / 'known'}\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {tmp_path / "ssh_config"} "$@"\n')
    (tmp_path / "bin" / "ssh").chmod(0o755)
    with (tmp_path / "sshd.log").open("wb") as log:
        server = subprocess.Popen([daemon, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=log)
    try:
        deadline = Deadline(20)
        while "Server listening" not in (tmp_path / "sshd.log").read_text():
            assert not deadline.passed(), (tmp_path / "sshd.log").read_text()
            assert server.poll() is None, (tmp_path / "sshd.log").read_text()
            time.sleep(0.05)
        yield {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    finally:
        server.terminate()
        server.wait(patient(10))
