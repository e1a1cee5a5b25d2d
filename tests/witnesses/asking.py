"""Programs that nobody here wrote, fetched below `build/tools` (`make witnesses`), and asked by these tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build" / "tools" / "witness" / "bin" / "python"


def judge(program: str, question: Any) -> Any:
    """What a program beside this file answers inside the witnesses' own environment."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is not there: run make witnesses")
    done = subprocess.run(
        [PYTHON, Path(__file__).parent / program],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
