"""Plans the changes that the page requests, with the code of the command line. A planned change is carried out once the
user agrees to the change.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_never

from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.changing.asking import (
    carry_out,
    launch_request,
    removal_request,
    replacement_request,
    resizable_groups,
    scaling_request,
    tagging_request,
)
from dyntrain.controller.cli.changing.requests import Request
from dyntrain.controller.contract.messages import ClusterName, InstanceId
from pydantic import BaseModel, ConfigDict, Field

MAX_NODES = 10_000  # a larger number is a typing mistake


class _StrictModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Scale(_StrictModel):  # a request to set the size of a group
    change: Literal["scale"]  # the kind of change
    cluster: ClusterName
    n: int = Field(ge=0, le=MAX_NODES)  # the desired number of nodes
    group: str | None = None  # name of the Auto Scaling group


class Add(_StrictModel):  # a request to launch workers
    change: Literal["add"]  # the kind of change
    cluster: ClusterName
    count: int = Field(ge=1, le=MAX_NODES)  # number of nodes to add
    group: str | None = None  # name of the Auto Scaling group


class TagMachine(_StrictModel):
    """A request to add a running machine to the cluster by tagging it."""

    change: Literal["take"]  # the kind of change
    cluster: ClusterName
    instance: InstanceId


class Remove(_StrictModel):  # a request that a worker leaves
    change: Literal["remove"]  # the kind of change
    instance: InstanceId
    now: bool = False  # whether the worker leaves without a leave window


class ReplaceBase(_StrictModel):  # a request to replace a base node
    change: Literal["replace"]  # the kind of change
    old: InstanceId  # the base node to replace
    new: InstanceId  # the node that takes its place


Change = Scale | Add | TagMachine | Remove | ReplaceBase


class ChangeRequest(_StrictModel):
    """A request from the page for a change to a cluster."""

    change: Annotated[Change, Field(alias="asked", discriminator="change")]
    agreed: str = ""  # the sentence to which the person agreed; "" only plans the change


def answer_change(connection: Connection, change_request: ChangeRequest) -> dict[str, Any]:
    """Plan the requested change, and carry out the plan if the user agreed to the sentence that describes the plan. If
    the plan has changed since the user agreed, nothing is done, and the new plan's sentence is returned. Raises
    ControllerError for an impossible change.
    """
    planned_request = _plan_change(connection, change_request.change)
    is_agreed = change_request.agreed == planned_request.sentence
    if is_agreed:
        carry_out(connection.ports, planned_request)
    stale_plan_text = (
        "the change would be another one by now; check it again" if change_request.agreed and not is_agreed else ""
    )
    return {
        "problem": stale_plan_text,
        "done": is_agreed,
        "sentence": planned_request.sentence,
        "aws": planned_request.aws_command,
    }


def resizable_group_sizes(connection: Connection, cluster: str) -> dict[str, Any]:
    """The cluster's Auto Scaling groups that can be resized, with the size of each group. Raises ControllerError."""
    group_sizes = [
        {"group": group, "desired": size.desired, "minimum": size.minimum, "maximum": size.maximum}
        for group, size in resizable_groups(connection, cluster).items()
    ]
    return {"problem": "", "groups": group_sizes}


def _plan_change(connection: Connection, change: Change) -> Request:
    match change:
        case Scale():
            return scaling_request(connection, change.cluster, change.n, change.group)
        case Add():
            return launch_request(connection, change.cluster, change.count, change.group)
        case TagMachine():
            return tagging_request(connection, change.cluster, [change.instance])
        case Remove():
            return removal_request(connection, [change.instance], now=change.now)
        case ReplaceBase():
            return replacement_request(connection, change.old, change.new)
        case _:
            assert_never(change)
