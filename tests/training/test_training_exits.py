"""How a worker ends that raises while others train: with its own exit code, at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_bed import free_port

SCRIPT = """
import ctypes, json, os, sys
os.environ.update(json.loads(sys.argv[1]))
from training.engine.pslite import PsLite
engine = PsLite("dist_sync", "127.0.0.1")
engine.form({{}}, [("w", (3,), "float32")])
ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine._native))  # as a traceback that is never let go of
print("formed", flush=True)
{end}
"""
HOST = "127.0.0.1"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A scheduler and a server for one worker."""
    environment = {"DMLC_PS_ROOT_URI": HOST, "DMLC_PS_ROOT_PORT": str(free_port(HOST)), "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    blanks = []
    try:
        for role in ("scheduler", "server"):
            blank = subprocess.Popen([sys.executable, "-m", "training.engine.blank"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            blanks.append(blank)
            assert blank.stdin is not None
            blank.stdin.write(json.dumps({"role": role, "environment": {**environment, "DMLC_NODE_HOST": HOST}}).encode() + b"\n")
            blank.stdin.close()
        yield environment
    finally:
        for blank in blanks:
            blank.kill()
            blank.wait(10)


@pytest.mark.parametrize(("end", "code"), [("raise RuntimeError('made to fail')", 1), ("sys.exit(3)", 3)])
def test_t7_a_worker_that_ends_inside_its_group_ends_with_the_scripts_own_exit_code(group: dict[str, str], end: str, code: int) -> None:
    """Otherwise ps-lite aborts it, and people look for a crash in C++ instead of their own error."""
    command = [sys.executable, "-c", SCRIPT.format(end=end), json.dumps(group)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (code, "formed\n"), ended.stderr
    assert ("made to fail" in ended.stderr) == (code == 1), "what Python has to say is said"
