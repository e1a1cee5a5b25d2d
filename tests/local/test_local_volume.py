"""The volume of a fault hunt that hangs: writers wait, as with a network file system whose server is away, and never
longer than whoever let it hang lives. Needs root and loop devices.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.controller.local.chaos.volume import UNSHARE_MOUNTS
from dyntrain.controller.local.pace import patient

pytestmark = pytest.mark.volume
LOOK_SECONDS = 1.0
OWNER = """
import sys
from pathlib import Path
from dyntrain.controller.local.chaos.volume import HangingVolume, record_own_namespace
record_own_namespace()
volume = HangingVolume(Path(sys.argv[1]))
volume.create_and_mount()
print("made", flush=True)
for line in sys.stdin:
    print(getattr(volume, line.split()[0])(*map(float, line.split()[1:])), flush=True)
"""
WRITER = """
import os, sys
print("writes", flush=True)
os.write(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), b'a word')
"""


class Owner:
    """In a mount namespace of its own; what is in it is reached through its process."""

    def __init__(self, mount: Path) -> None:
        command = [*UNSHARE_MOUNTS, sys.executable, "-c", OWNER, str(mount)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.says() == "made"
        self.folder = mount
        self.mount = Path(f"/proc/{self.process.pid}/root{mount}")

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, order: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.says()

    def writer(self) -> subprocess.Popen[bytes]:
        """Somebody who makes a file there, and is about to when this returns."""
        command = [sys.executable, "-S", "-c", WRITER, str(self.mount / "file")]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        with writer.stdout as output:
            assert output.readline() == b"writes\n"
        return writer

    def waiting(self) -> subprocess.Popen[bytes]:
        """One who waits there."""
        writer = self.writer()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(LOOK_SECONDS)
        return writer


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path / "shared")
    yield owner
    owner.process.kill()
    owner.process.wait(patient(20))


def test_writers_wait_while_it_hangs_and_go_on_afterwards(owner: Owner, tmp_path: Path) -> None:
    assert owner.writer().wait(patient(20)) == 0
    assert owner.do("hang 300") == "True"
    assert owner.do("hang 300") == "False", "it hangs already"
    writer = owner.waiting()
    assert owner.do("resume") == "True"
    assert writer.wait(patient(20)) == 0
    assert owner.do("close 1") == "None"
    assert not (tmp_path / "shared.image").exists()
    assert (tmp_path / "shared" / "file").read_text() == "a word", "what a hunt leaves can be looked at"


def test_it_does_not_hang_for_longer_than_its_owner_lives(owner: Owner) -> None:
    assert owner.do("hang 300") == "True"
    writer = owner.waiting()
    owner.process.kill()
    assert writer.wait(patient(20)) == 0, "a process that waits there could not even be killed"
    assert str(owner.folder) not in Path("/proc/mounts").read_text()
