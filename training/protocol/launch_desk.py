"""What `dyntrain launch` and the node's program say to each other on a base node: one JSON line there and one back,
over a socket that root and the people who may log in can open.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SOCKET = Path("/var/lib/dyntrain/launch.sock")
VARIABLE = "DYNTRAIN_LAUNCH_SOCKET"  # where it is on this node
MAX_LINE = 128 * 1024  # below a message of the control channel, which carries it on
ANSWER_SECONDS = 30.0  # for the coordinator


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToLaunch(_Line):
    """`directory`: where it was typed; it counts where that is on the shared volume."""

    ask: Literal["launch"] = "launch"
    request: str
    command: tuple[str, ...] = Field(min_length=1)
    directory: str
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
    dt_scripts: bool = False


class ToEnd(_Line):
    ask: Literal["end"] = "end"
    request: str


class Reply(_Line):
    """`refused`: why not, else ""; `passing`: asked again in a moment, it may not be.

    `events` is the job's log on the volume, `log` the worker's on this node."""

    refused: str = ""
    passing: bool = False
    job: str = ""
    directory: str = ""
    events: str = ""
    log: str = ""


Ask = ToLaunch | ToEnd
ASK: TypeAdapter[Ask] = TypeAdapter(Annotated[Ask, Field(discriminator="ask")])


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """The socket by a name that is short enough: the kernel takes 107 bytes. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask(path: Path, question: Ask) -> Reply:
    """Raises OSError, ValueError."""
    asked = question.model_dump_json().encode() + b"\n"
    if len(asked) > MAX_LINE:
        raise ValueError(f"the command and its environment are longer than {MAX_LINE >> 10} KiB")
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(2 * ANSWER_SECONDS)
        with reachable(path) as name:
            line.connect(name)
        line.sendall(asked)
        with line.makefile("rb") as said:
            return Reply.model_validate_json(said.readline(MAX_LINE))
