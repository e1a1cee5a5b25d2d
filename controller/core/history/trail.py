"""The audit trail of a cluster: the cluster's changes and the controller's actions on AWS, with one model for each kind
of entry. The name of an entry's kind appears in the DynamoDB table and in the output of `dyntrain events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from dyntrain.controller.core.decisions.actions import Action
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.core.records.registers import Fact


class Entry(Fact):
    """Base of all entries of the audit trail. `instance` is "" for an entry that concerns no instance."""

    kind: str  # the name of the change or action
    instance: str = ""  # instance id; "": no instance
    detail: str = ""  # a text for people

    def fields(self) -> dict[str, str]:
        """The fields that are not empty, as text, in the order in which users see the fields."""
        return {name: text for name, value in self if (text := _as_text(value))}


class StatusChanged(Entry):
    """A change of a node's status. `before` and `after` have the format of `Standing.line`."""

    kind: Literal["status"] = "status"
    before: str  # old status and reason
    after: str  # new status and reason

    def fields(self) -> dict[str, str]:
        return {"before": "", **super().fields()}


class AlarmRaised(Entry):
    """An alarm that the controller raised. `kind` is the name of the alarm's metric."""


class Nominated(Entry):
    """The nomination of a node to run the coordinator. `coordinator` is "" when no node is nominated."""

    kind: Literal["nomination"] = "nomination"
    coordinator: str  # id of the nominated instance
    term: int  # the number of the nomination

    def fields(self) -> dict[str, str]:
        return {"coordinator": "", **super().fields()}


class Rebuilt(Entry):
    """The recovery from the loss of the DynamoDB table: the controller continues from the published target."""

    kind: Literal["rebuilt"] = "rebuilt"
    revision: int  # of the target
    members: str = ""  # of the target, as text


class TargetPublished(Entry):
    kind: Literal["PublishTarget"] = "PublishTarget"
    revision: int  # of the target
    members: str = ""  # of the target, as text


class CapacitySet(Entry):
    kind: Literal["SetDesiredCapacity"] = "SetDesiredCapacity"
    group: str  # the Auto Scaling group's name
    value: int  # the new desired capacity
    why: str = ""  # why the capacity changed


class ActionDone(Entry):
    """An action on AWS that took effect. `kind` is the action's name."""

    value: str = ""  # what the action set, as text
    why: str = ""  # why the action was needed


class ActionRefused(Entry):
    """An action that AWS refused. `kind` is the action's name, and `detail` is AWS's reason."""

    why: Literal["REFUSED"] = "REFUSED"


class Metered(Entry):
    """The beginning or the end (`state`) of a machine's costs at the time `since`, with the machine's type and role."""

    kind: Literal["machine"] = "machine"
    state: Literal["on", "off"]  # whether the machine's costs began or ended
    role: str  # what the machine is for the cluster
    type: str  # the EC2 instance type
    market: str  # the purchase option, such as spot
    since: float  # seconds since the epoch

    @property
    def line(self) -> str:  # what the entry says, without its time
        """A text by which `metering` notices that a new entry only repeats the node's last entry."""
        return f"{self.state} {self.role} {self.type} {self.market}"


class PoolDecided(Entry):
    """One decision about the size of a reserved pool. `inputs` can be passed to `dyntrain pool plan --from-file`."""

    kind: Literal["Rebalance"] = "Rebalance"
    why: str  # the reason of the decision
    dry_run: Literal["yes", "no"]  # whether the decision is only recorded
    current: int  # the pool's size before
    held: int  # number of the pool's running instances
    spare: int  # number of reserved instances that it may use
    proposal: int  # the size that the present inputs call for
    target: int  # the new size
    inputs: str  # the inputs of the decision as JSON


_MODEL_BY_KIND: Mapping[str, type[Entry]] = {
    "status": StatusChanged,
    "nomination": Nominated,
    "rebuilt": Rebuilt,
    "PublishTarget": TargetPublished,
    "SetDesiredCapacity": CapacitySet,
    "Rebalance": PoolDecided,
    "machine": Metered,
}
_ACTION_NAMES = frozenset(action.__name__ for action in get_args(Action))


def entry_of(fields: Mapping[str, str]) -> Entry:
    """Parse an entry from the output of `Entry.fields`. Raises ValueError for wrong fields and for an unknown kind."""
    kind_name = fields.get("kind", "")
    if fields.get("why") == "REFUSED":
        return ActionRefused.model_validate(fields)
    if kind_name in _MODEL_BY_KIND:
        return _MODEL_BY_KIND[kind_name].model_validate(fields)
    if kind_name in METRICS:
        return AlarmRaised.model_validate(fields)
    if kind_name in _ACTION_NAMES:
        return ActionDone.model_validate(fields)
    raise ValueError(f"an entry of the audit trail has the unknown kind {kind_name!r}")


def _as_text(value: object) -> str:
    return "" if value is None else str(value)
