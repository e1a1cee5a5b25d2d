"""The fork server of the ps-lite processes of all tests."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys

from dyntrain.controller.local.pace import patient
from dyntrain.training.host.forkserver import ForkServerSocket


@functools.cache
def fork_server() -> ForkServerSocket:
    """A real node has its own; here one serves the nodes of all tests, since each costs an import of MXNet."""
    line = ForkServerSocket()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **line.environment}
    command = [sys.executable, "-m", "dyntrain.training.engine.blank"]
    server = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(line.child_fd,)
    )
    line.close_child_end()
    atexit.register(server.wait, patient(10))
    atexit.register(line.close)  # runs first, and ends it with its blanks
    return line
