"""Changes requested from the page: planned as by the command line, shown, and done only once that very sentence was
agreed to.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_never

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.changing.asking import (
    add_request,
    carry_out,
    launch_request,
    remove_request,
    replace_request,
    resizable_groups,
    scale_request,
)
from dyntrain.controller.cli.changing.requests import Request
from dyntrain.controller.contract.messages import ClusterName, InstanceId
from pydantic import BaseModel, ConfigDict, Field

MOST = 10_000  # a larger number is a typing mistake


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Scale(_Strict):
    change: Literal["scale"]
    cluster: ClusterName
    n: int = Field(ge=0, le=MOST)
    group: str | None = None


class Add(_Strict):
    change: Literal["add"]
    cluster: ClusterName
    count: int = Field(ge=1, le=MOST)
    group: str | None = None


class Take(_Strict):
    """A request to tag a running machine."""

    change: Literal["take"]
    cluster: ClusterName
    instance: InstanceId


class Remove(_Strict):
    change: Literal["remove"]
    instance: InstanceId
    now: bool = False


class Replacing(_Strict):
    change: Literal["replace"]
    old: InstanceId
    new: InstanceId


Change = Scale | Add | Take | Remove | Replacing


class Wish(_Strict):
    """A request from the page. `agreed` is the sentence that was shown and agreed to; "": only show it."""

    change: Annotated[Change, Field(alias="asked", discriminator="change")]
    agreed: str = ""


def answer(connection: Connection, wish: Wish) -> dict[str, Any]:
    """Plan the change, and do it if it was agreed to. If it would be another one by now, nothing is done, and the new
    sentence is shown. Raises ControllerError when it is impossible.
    """
    request = _planned(connection, wish.change)
    done = wish.agreed == request.sentence
    if done:
        carry_out(connection.ports, request)
    stale = "it would be something else by now; look again" if wish.agreed and not done else ""
    return {"problem": stale, "done": done, "sentence": request.sentence, "aws": request.aws_command}


def groups(connection: Connection, cluster: str) -> dict[str, Any]:
    """The groups that can be resized. Raises ControllerError."""
    sizes = [
        {"group": group, "desired": size.desired, "minimum": size.minimum, "maximum": size.maximum}
        for group, size in resizable_groups(connection, cluster).items()
    ]
    return {"problem": "", "groups": sizes}


def _planned(connection: Connection, change: Change) -> Request:
    match change:
        case Scale():
            return scale_request(connection, change.cluster, change.n, change.group)
        case Add():
            return launch_request(connection, change.cluster, change.count, change.group)
        case Take():
            return add_request(connection, change.cluster, [change.instance])
        case Remove():
            return remove_request(connection, [change.instance], now=change.now)
        case Replacing():
            return replace_request(connection, change.old, change.new)
        case _:
            assert_never(change)
