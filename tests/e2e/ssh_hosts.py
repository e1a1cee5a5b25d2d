"""Three hosts with a real sshd each, for the manual launcher: network namespaces, one directory that all share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from dyntrain.controller.local.machines.namespaces import Namespaces
from dyntrain.controller.local.pace import patient
from surroundings import sshd
from waiting import wait_for

SERVER_OPTIONS = (
    "UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
)


class SshHosts:
    """`addresses` are the hosts', which ssh knows as `node-0`, `node-1` ... `environment` has an `ssh` on PATH that
    knows the key.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.network = Namespaces()
        self._count = count
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        daemon, client = sshd(), shutil.which("ssh")
        assert daemon, "the test is not marked `openssh`"
        assert client, "the test is not marked `openssh`"
        self._undo.callback(self.network.stop)
        self.network.start()
        self.addresses = self.network.addresses[: self._count]
        self._make_keys(client)
        for number, address in enumerate(self.addresses):
            self._serve(daemon, number, address)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def entrance(self, number: int) -> tuple[str, ...]:
        return self.network.command_prefix(f"host-{number}", self.addresses[number])

    def cut(self, number: int) -> None:
        assert self.network.cut_link(f"host-{number}")

    def mend(self, number: int) -> None:
        assert self.network.mend_link(f"host-{number}")

    def start(self, number: int, argv: list[str], **more: Any) -> subprocess.Popen[bytes]:
        """A process on the host; ended with the hosts at the latest."""
        process = subprocess.Popen(
            [*self.entrance(number), *argv], env=self.environment, start_new_session=True, **more
        )
        self._undo.callback(_end, process)
        return process

    def _make_keys(self, client: str) -> None:
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        files = f" IdentityFile {self.folder / 'user'}\n UserKnownHostsFile {self.folder / 'known'}\n"
        names = "".join(f"Host node-{i}\n HostName {address}\n" for i, address in enumerate(self.addresses))
        config = f"{names}Host *\n User root\n StrictHostKeyChecking no\n{files}"
        (self.folder / "ssh_config").write_text(config)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {self.folder / "ssh_config"} "$@"\n')
        (self.folder / "bin" / "ssh").chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it for its unprivileged half; its package makes it at boot

    def _serve(self, daemon: str, number: int, address: str) -> None:
        config, log_file = self.folder / f"sshd_config_{number}", self.folder / f"sshd_{number}.log"
        keys = f"HostKey {self.folder / 'host'}\nAuthorizedKeysFile {self.folder / 'user.pub'}\n"
        config.write_text(f"Port 22\nListenAddress {address}\n{keys}{SERVER_OPTIONS}")
        with log_file.open("wb") as log:
            server = self.start(number, [daemon, "-D", "-e", "-f", str(config)], stderr=log)
        wait_for(
            lambda: "Server listening" in log_file.read_text() or server.poll() is not None, 20, f"sshd on {address}"
        )
        assert server.poll() is None, log_file.read_text()

    def logins(self, number: int) -> int:
        return (self.folder / f"sshd_{number}.log").read_text().count("Accepted publickey")


class ManualJob:
    """The launcher in `folder`, on the first of the hosts."""

    def __init__(self, hosts: SshHosts, folder: Path, argv: list[str]) -> None:
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self.process = hosts.start(0, argv, cwd=folder, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def edit(self, addresses: list[str]) -> None:
        """As people do: a file beside it, then `cp`."""
        (self.folder / "hosts.new").write_text("".join(f"{address}\n" for address in addresses))
        shutil.copy(self.folder / "hosts.new", self.folder / "host_worker")

    def wait_for(self, pattern: str, seconds: float = 90.0, after: int = 0) -> int:
        """Until the log has the pattern after that many characters; returns where it ends."""

        def look() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log[-3000:]
            return re.compile(pattern).search(self.log, after)

        match = wait_for(look, seconds, lambda: f"{pattern!r} in\n{self.log[-3000:]}")
        assert match is not None
        return match.end()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(patient(30))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(patient(10))
