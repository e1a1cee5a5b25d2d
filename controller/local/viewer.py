"""Run the dashboard for the embedded cloud, in a process of its own with the cloud's AWS settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.controller.local.lines import read_line
from dyntrain.controller.local.pace import Deadline, patient
from dyntrain.training.host import exec_child

POLL_SECONDS = 0.5  # between two reads of the dashboard; reads of the embedded cloud cost nothing
START_SECONDS = 60.0  # limit for the start of the dashboard
STOP_SECONDS = 10.0  # limit for the end of the dashboard


@contextmanager
def run_dashboard(
    environment: Mapping[str, str], state_dir: Path, port: int, *, allow_changes: bool = False
) -> Iterator[str]:
    """A context that runs the dashboard and gives the dashboard's address. The dashboard ends when the `with` block or
    this process ends. `state_dir` is the folder of the embedded cloud's files. The thread that enters the context must
    live until the block ends, because the dashboard dies with this thread. Raises LocalCloudError with the command's
    output if the dashboard does not start.
    """
    inherited_variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DYNTRAIN_"))
    }
    command = (
        "-m",
        "dyntrain",
        "dashboard",
        "--port",
        str(port),
        "--every",
        str(POLL_SECONDS),
        "--directory",
        str(state_dir),
        *(("--allow-changes",) if allow_changes else ()),
    )
    argv = (sys.executable, exec_child.__file__, str(os.getpid()), "0", sys.executable, *command)
    log_path = state_dir / "logs" / "dashboard.log"  # no pipe, because nobody would read the later output
    log_path.parent.mkdir(exist_ok=True)
    with (
        log_path.open("w") as error_log,
        subprocess.Popen(
            argv,
            env={**inherited_variables, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_log,
            start_new_session=True,  # Ctrl-C goes to the cloud, which ends the dashboard in order
        ) as process,
    ):
        try:
            assert process.stdout is not None
            try:
                line, _ = read_line(process.stdout.fileno(), Deadline(START_SECONDS))
            except (TimeoutError, EOFError):
                line = b""
            address_match = re.search(r"http://\S+", line.decode())
            if address_match is None:
                raise LocalCloudError(
                    f"the dashboard did not start: {log_path.read_text().strip() or 'it printed nothing'}"
                )
            yield address_match[0]
        finally:
            process.terminate()
            try:
                process.wait(patient(STOP_SECONDS))
            except subprocess.TimeoutExpired:
                process.kill()
