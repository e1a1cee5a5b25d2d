"""What the node starts for the job: root must neither load what the job's environment names, nor wait for its volume,
nor kill whatever it points at.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

from dyntrain.node_bootstrap.host.processes import Children, Program
from dyntrain.training.host.exec_child import hide_variables
from dyntrain.training.host.forkserver import Blank


def ran(directory: Path, cwd: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a shell that says where it is and what it has."""
    log = directory / "log"

    async def scenario() -> int:
        children = Children(str(directory), 1)
        command = ["/bin/sh", "-c", "pwd; echo $LD_PRELOAD; env | grep -c LATER"]
        try:
            child = await children.start("sh", Program(command, environment, log, str(cwd)))
            return await child.wait()
        finally:
            await children.stop_all(0.0)

    return asyncio.run(scenario()), log.read_text()


def test_only_the_program_itself_loads_what_the_jobs_environment_names(tmp_path: Path) -> None:
    """Its volume is written by everybody: a library there would run as root on each node."""
    library = str(tmp_path / "nowhere.so")
    _, output = ran(tmp_path, tmp_path, {"LD_PRELOAD": library})
    lines = output.splitlines()
    at = lines.index(str(tmp_path))
    complaints = [line for line in lines[:at] if library in line]
    assert len(complaints) == 1, "the loader says of each program that it lacks the library: the shell alone is one"
    assert lines[at + 1] == library
    assert lines[-1] == "0"


def test_what_the_supervisors_own_interpreter_needs_stays() -> None:
    given = {"LD_LIBRARY_PATH": "/ours", "LD_AUDIT": "/theirs", "GCONV_PATH": "/theirs", "PATH": "/bin"}
    assert hide_variables(given, {"LD_LIBRARY_PATH": "/ours"}) == {
        "LD_LIBRARY_PATH": "/ours",
        "DYNTRAIN_LATER_LD_AUDIT": "/theirs",
        "DYNTRAIN_LATER_GCONV_PATH": "/theirs",
        "PATH": "/bin",
    }


def test_the_child_itself_goes_to_its_directory(tmp_path: Path) -> None:
    """A volume that stalls would stop the supervisor's loop, and the watchdog would end the node with its job."""
    assert ran(tmp_path, tmp_path / "nowhere", {}) == (
        126,
        f"cannot work in {tmp_path}/nowhere: No such file or directory\n",
    )


def test_a_process_of_somebody_else_is_no_blank_and_is_not_killed() -> None:
    """The user's fork server says the number; root would kill a process of the system."""
    with subprocess.Popen(["sleep", "60"]) as other:

        async def started_as(uid: int) -> bool:
            ours, theirs = socket.socketpair()
            with theirs:
                theirs.sendall(f"{other.pid}\n".encode())
                blank = Blank(*await asyncio.open_connection(sock=ours))
                started = await blank.started(uid)
                await blank.stop()
                return started

        try:
            assert not asyncio.run(started_as(os.getuid() + 1))
            assert other.poll() is None
            assert asyncio.run(started_as(os.getuid()))
        finally:
            other.kill()
