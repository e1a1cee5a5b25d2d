"""Changes requested from the page: planned by the command line's code, and carried out once a person agrees to them."""

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

MAX_COUNT = 10_000  # a larger number is a typing mistake


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Scale(_Strict):
    change: Literal["scale"]
    cluster: ClusterName
    n: int = Field(ge=0, le=MAX_COUNT)
    group: str | None = None


class Add(_Strict):
    change: Literal["add"]
    cluster: ClusterName
    count: int = Field(ge=1, le=MAX_COUNT)
    group: str | None = None


class TagMachine(_Strict):
    """A request to tag a running machine."""

    change: Literal["take"]
    cluster: ClusterName
    instance: InstanceId


class Remove(_Strict):
    change: Literal["remove"]
    instance: InstanceId
    now: bool = False


class ReplaceBase(_Strict):
    change: Literal["replace"]
    old: InstanceId
    new: InstanceId


Change = Scale | Add | TagMachine | Remove | ReplaceBase


class ChangeRequest(_Strict):
    """A request from the page. `agreed` is the sentence to which the person agreed; "": only plan the change."""

    change: Annotated[Change, Field(alias="asked", discriminator="change")]
    agreed: str = ""


def answer(connection: Connection, change_request: ChangeRequest) -> dict[str, Any]:
    """Plan the change, and carry it out if the person agreed to its sentence. If the plan is another one by now,
    nothing is done, and the new sentence is returned. Raises ControllerError for an impossible change.
    """
    request = _planned(connection, change_request.change)
    done = change_request.agreed == request.sentence
    if done:
        carry_out(connection.ports, request)
    stale = "the change would be another one by now; check it again" if change_request.agreed and not done else ""
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
        case TagMachine():
            return add_request(connection, change.cluster, [change.instance])
        case Remove():
            return remove_request(connection, [change.instance], now=change.now)
        case ReplaceBase():
            return replace_request(connection, change.old, change.new)
        case _:
            assert_never(change)
