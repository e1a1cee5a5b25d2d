"""Messages between `dyntrain launch` and a base node's supervisor: one JSON line as request, one JSON line as reply.

The messages go through a Unix socket that root and the users who may log in can open.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SOCKET = Path("/var/lib/dyntrain/launch.sock")  # default path of the supervisor's socket
VARIABLE = "DYNTRAIN_LAUNCH_SOCKET"  # environment variable with the socket's path on this node
MAX_LINE = 128 * 1024  # less than MAX_BYTES of the control channel, which forwards the line
ANSWER_SECONDS = 30.0  # limit for the coordinator's answer


class _JsonLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LaunchQuestion(_JsonLine):
    """Request to launch a training command."""

    ask: Literal["launch"] = "launch"  # kind of the request
    request: str  # id of the request
    command: tuple[str, ...] = Field(min_length=1)  # program and arguments
    directory: str  # current directory, in which the command runs if it is on the shared volume
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]  # extra environment variables
    dt_scripts: bool = False  # whether scripts of AWS Dynamic Training run unchanged


class EndQuestion(_JsonLine):
    """Request to stop the launch that has this `request` id."""

    ask: Literal["end"] = "end"  # kind of the request
    request: str  # id of the launch


class Reply(_JsonLine):
    """Reply to a launch's request, with the paths of the job's files."""

    refused: str = ""  # reason of a refusal
    passing: bool = False  # whether the refused request may soon be accepted
    job: str = ""  # name of the launched job
    directory: str = ""  # in which the command runs
    events: str = ""  # path of the job's event log, on the volume
    log: str = ""  # path of the worker's log, on this node


Question = LaunchQuestion | EndQuestion
QUESTION_ADAPTER: TypeAdapter[Question] = TypeAdapter(Annotated[Question, Field(discriminator="ask")])


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a short path of the socket, as the kernel accepts paths of at most 107 bytes. Raises OSError."""
    folder_descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder_descriptor}/{path.name}"
    finally:
        os.close(folder_descriptor)


def ask(path: Path, question: Question) -> Reply:
    """Send a request to the base node's supervisor and return its reply. Raises OSError and ValueError."""
    request_line = question.model_dump_json().encode() + b"\n"
    if len(request_line) > MAX_LINE:
        raise ValueError(f"the command and its environment are longer than {MAX_LINE >> 10} KiB")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2 * ANSWER_SECONDS)
        with short_path(path) as socket_path:
            connection.connect(socket_path)
        connection.sendall(request_line)
        with connection.makefile("rb") as reply_file:
            return Reply.model_validate_json(reply_file.readline(MAX_LINE))
