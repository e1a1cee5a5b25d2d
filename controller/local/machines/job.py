"""The program of a job's node on a plain machine. The program comes from the user data, but runs without the login user
and the packages that the user data sets up on EC2.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dyntrain.controller.jobs.submission.user_data import program_of


def job_command(user_data: str, root: Path) -> tuple[str, ...]:
    """The command of the job's program; empty for a machine that is not a node of a job. This function also writes the
    program to its file in the machine's root folder.
    """
    program_and_arguments = program_of(user_data)
    if program_and_arguments is None:
        return ()
    program_bytes, program_arguments = program_and_arguments
    program_path = root / "opt" / "dyntrain-job" / "node.pyz"
    program_path.parent.mkdir(parents=True, exist_ok=True)
    program_path.write_bytes(program_bytes)
    return (sys.executable, str(program_path), *program_arguments)
