"""`python -m training.launch` as people use it: real processes, an edited host_worker, a real sshd."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from training.launch import LaunchError, node_command, parse

TINY = str(Path(__file__).parent / "tiny_job.py")
ROOT = Path(__file__).parents[2]


class Launched:
    """A launcher in a directory of its own; its steps are slow until `go`."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.folder, self.hold = folder, folder / "hold"
        folder.mkdir(exist_ok=True)
        self.hold.touch()
        self._log = (folder / "log").open("wb")
        command = [sys.executable, TINY, "--epochs", "200", "--hold", str(self.hold)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "training.launch", *options, "--env", "OMP_NUM_THREADS:1", "--env", "PYTHONPATH", *command],
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
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.log):
            assert time.monotonic() < deadline, f"no {pattern!r} within {seconds} s in\n{self.log[-3000:]}"
            assert self.process.poll() is None, self.log[-3000:]
            time.sleep(0.05)

    def edit(self, *hosts: str) -> None:
        (self.folder / "host_worker").write_text("".join(f"{host}\n" for host in hosts))

    def go(self) -> int:
        self.hold.unlink()
        return self.process.wait(60)

    def left_over(self) -> list[str]:
        return self.working_in(self.folder)

    @staticmethod
    def working_in(folder: Path) -> list[str]:
        """Command lines of processes whose working directory it is."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").resolve() == folder.resolve():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._log.close()


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    jobs: list[Launched] = []

    def start(*options: str, **kwargs: dict[str, str]) -> Launched:
        jobs.append(Launched(tmp_path / "job", *options, **kwargs))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def test_launch_m1_m2_hosts_join_and_leave_by_edits_of_host_worker(launched: Callable[..., Launched]) -> None:
    elsewhere = ["--events", "record/events.jsonl", "--checkpoint-dir", "kept", "--segment-steps", "3"]
    job = launched("-n", "1", "--launcher", "local", *elsewhere)
    job.wait_for(r"epoch 0 .* workers 1")
    first = [line.split(" INFO ")[1].split(" /")[0] for line in job.log.splitlines() if " INFO " in line]
    assert first[:2] == ["Created worker host file", "Created worker host log file"]
    assert "INFO Launching server node at ip: 127.0.0.1" in job.log
    assert "INFO Launching worker node at ip: 127.0.0.1" in job.log
    job.edit("127.0.0.9", "127.0.0.1")
    job.wait_for("Launching worker node at ip: 127.0.0.9")
    job.wait_for(r"epoch \d+ .* workers 2")
    job.edit("127.0.0.9")
    job.wait_for("lacks a base host")
    job.edit("127.0.0.1")
    job.wait_for(r"i-\w+ left")
    job.wait_for(r"workers 2(.*\n)+.* workers 1 ")
    assert job.go() == 0
    changes = [line.split()[:3] for line in (job.folder / "host_worker_log").read_text().splitlines()]
    assert changes == [["0", "ADDED", "127.0.0.1"], ["1", "ADDED", "127.0.0.9"], ["2", "REMOVED", "127.0.0.9"]]
    events = [json.loads(line) for line in (job.folder / "record" / "events.jsonl").open()]
    causes = [event["cause"] for event in events if event["event"] == "forming"]
    assert causes == ["the job starts", "the target wants other members", "the target wants other members"]
    formed = [event for event in events if event["event"] == "formed"]
    assert [len(event["members"]) for event in formed] == [1, 2, 1]
    assert all(event["generation"] and event["phases"] for event in formed)
    assert list((job.folder / "kept").rglob("*.commit"))
    assert not list((job.folder / "dyntrain").rglob("*.commit"))
    assert re.search(r"epoch \d+ step \d+ generation \d+ workers 1 \d+ samples/s loss=\d", job.log), "what people look at while it trains"
    assert job.left_over() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_launch_the_launchers_end_is_the_end_of_everything(launched: Callable[..., Launched], number: int) -> None:
    job = launched("-n", "1", "--launcher", "local", "--elastic-training-enabled", "False")
    job.wait_for(r"epoch 0 .* workers 1")
    assert not (job.folder / "host_worker").exists(), "False really means false"
    job.process.send_signal(number)
    assert job.process.wait(30) == (130 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 20
    while job.left_over() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.left_over() == []


@pytest.fixture
def ssh_environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A real sshd on a port and with keys of its own, and `ssh` on PATH told of them."""
    daemon = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    client = shutil.which("ssh")
    if not daemon or not client:
        pytest.skip("no OpenSSH on this machine: install openssh-server to run it; .ci/run does")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "user.pub").rename(tmp_path / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it for its unprivileged half; its package makes it at boot
    options = {
        "Port": port, "ListenAddress": "0.0.0.0", "HostKey": tmp_path / "host", "AuthorizedKeysFile": tmp_path / "authorized",
        "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password", "PidFile": "none",
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
        deadline = time.monotonic() + 20
        while "Server listening" not in (tmp_path / "sshd.log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "sshd.log").read_text()
            assert server.poll() is None, (tmp_path / "sshd.log").read_text()
            time.sleep(0.05)
        yield {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    finally:
        server.terminate()
        server.wait(10)


def test_launch_ssh_trains_on_hosts_behind_a_real_sshd(launched: Callable[..., Launched], ssh_environment: dict[str, str], tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1\n127.0.0.2\n")
    copied = tmp_path / "copied over there"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("print('the script')\n")
    job = launched("-n", "2", "-H", str(hosts), "--launcher", "ssh", "--sync-dst-dir", str(copied), environment=ssh_environment)
    job.wait_for(r"epoch 0 .* workers 2")
    assert (tmp_path / "sshd.log").read_text().count("Accepted publickey") == 4, "a copy and a node on each host"
    assert (copied / "train.py").read_text() == "print('the script')\n"
    assert not (copied / "dyntrain").exists(), "the job's own files are no part of the script"
    assert Launched.working_in(copied), "the workers run where they were copied to"
    assert job.go() == 0
    assert "job finished" in job.log
    deadline = time.monotonic() + 20
    while (job.left_over() or Launched.working_in(copied)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.left_over() == Launched.working_in(copied) == []


def test_launch_takes_every_flag_of_dynamic_training_and_quotes_what_a_remote_shell_reads(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1\n127.0.0.2\n127.0.0.3\n")
    flags = ["--num-workers", "2", "--num-servers", "1", "--hostfile", str(hosts), "--launcher", "ssh", "--env", "A:1", "--env-server", "B:2"]
    more = ["--env-worker", "C:3", "--sync-dst-dir", "/tmp/x; rm -rf y", "--elastic-training-enabled", "False", "--host", "127.0.0.7", "--port", "9"]
    plan = parse([*flags, *more, "python", "train.py", "--kv-store", "dist_device_sync"])
    assert (plan.hosts, plan.servers, plan.elastic, plan.host, plan.port) == (("127.0.0.1", "127.0.0.2"), 1, False, "127.0.0.7", 9)
    assert (plan.worker_environment, plan.server_environment) == ({"A": "1", "C": "3"}, {"A": "1", "B": "2"})
    assert plan.command == ("python", "train.py", "--kv-store", "dist_device_sync")
    assert node_command(plan, "127.0.0.1", tmp_path)[-1].startswith("cd '/tmp/x; rm -rf y' && exec ")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["-n", "1", "--launcher", "local"], "no training command"),
        (["-n", "0", "--launcher", "local", "x"], "at least 1"),
        (["-n", "1", "x"], "needs -H"),
        (["-n", "1", "-H", "/nonexistent", "x"], "/nonexistent"),
        (["-n", "2", "-s", "3", "--launcher", "local", "x"], "--num-servers 3"),
        (["-n", "1", "--launcher", "local", "--env", "no name", "x"], "NAME:VALUE"),
    ],
)
def test_launch_says_what_is_wrong_with_a_command_line(argv: list[str], said: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse(argv)
    assert said in str(caught.value)
