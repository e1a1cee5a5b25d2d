"""How a worker ends that raises while others train: with its own exit code, at once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

from dyntrain.controller.local.pace import patient
from dyntrain.training.host.forkserver import ForkServerSocket
from job_bed import free_port

SCRIPT = """
import ctypes, json, os, sys
os.environ.update(json.loads(sys.argv[1]))
from dyntrain.training.engine.pslite import PsLite
engine = PsLite("dist_sync", "127.0.0.1")
engine.form({}, [("w", (3,), "float32")])
ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine._native))  # as a traceback that is never let go of
print("formed", flush=True)
exec(sys.argv[2])
"""
HOST = "127.0.0.1"


def end_inside_a_group(ends: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of a worker that ends like that, alone in a group with a scheduler and a server; of
    one after the other.
    """

    async def run() -> list[tuple[int, str, str]]:
        line = ForkServerSocket()
        environment = {**os.environ, **line.environment, "OMP_NUM_THREADS": "1"}
        command = (sys.executable, "-m", "dyntrain.training.engine.blank")
        server = await asyncio.create_subprocess_exec(*command, env=environment, pass_fds=(line.child_fd,))
        line.close_child_end()
        try:
            return [await one(line, end) for end in ends]
        finally:
            line.close()
            server.kill()
            await server.wait()

    async def one(line: ForkServerSocket, end: str) -> tuple[int, str, str]:
        group = {
            "DMLC_PS_ROOT_URI": HOST,
            "DMLC_PS_ROOT_PORT": str(free_port(HOST)),
            "DMLC_NUM_WORKER": "1",
            "DMLC_NUM_SERVER": "1",
        }
        blanks = [await line.fork() for _ in range(2)]
        for blank, role in zip(blanks, ("scheduler", "server"), strict=True):
            assert await blank.started()
            await blank.give(role, {**group, "DMLC_NODE_HOST": HOST})
        command = [sys.executable, "-c", SCRIPT, json.dumps(group), end]
        ended = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=patient(80), check=False
        )
        for blank in blanks:
            await blank.stop()
        return ended.returncode, ended.stdout, ended.stderr

    return asyncio.run(run())


def test_t7_a_worker_that_ends_inside_its_group_ends_with_the_scripts_own_exit_code() -> None:
    """Otherwise ps-lite aborts it, and people look for a crash in C++ in place of their own error."""
    (raised, before, errors), (left, _, _) = end_inside_a_group(["raise RuntimeError('made to fail')", "sys.exit(3)"])
    assert (raised, left, before) == (1, 3, "formed\n")
    assert "RuntimeError: made to fail" in errors, "what Python has to say is said"
