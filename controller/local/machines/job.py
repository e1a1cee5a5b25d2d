"""The program of a job's node on a plain machine: the same program as in the user data, but without the user data's
user and packages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dyntrain.controller.jobs.submission.user_data import program_of


def job_command(user_data: str, root: Path) -> tuple[str, ...]:
    """The command of the job's program; empty for a machine that is no node of a job. This function also writes the
    program's file, to the path in the user data.
    """
    program_and_arguments = program_of(user_data)
    if program_and_arguments is None:
        return ()
    program, arguments = program_and_arguments
    program_path = root / "opt" / "dyntrain-job" / "node.pyz"
    program_path.parent.mkdir(parents=True, exist_ok=True)
    program_path.write_bytes(program)
    return (sys.executable, str(program_path), *arguments)
