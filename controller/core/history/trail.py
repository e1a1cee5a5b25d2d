"""The audit trail of a cluster: changes and actions, with one model for each kind. `kind` is the name in the table and
in `dyntrain events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from dyntrain.controller.core.decisions.actions import Action
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.core.records.registers import Fact


class Entry(Fact):
    """Base of all entries. `instance` is "" for an entry that concerns no instance."""

    kind: str
    instance: str = ""
    detail: str = ""

    def fields(self) -> dict[str, str]:
        """The fields as text, in reading order, without empty fields."""
        return {name: text for name, value in self if (text := _as_text(value))}


class StatusChanged(Entry):
    """A change of a node's status. `before` and `after` have the format of `Standing.line`."""

    kind: Literal["status"] = "status"
    before: str
    after: str

    def fields(self) -> dict[str, str]:
        return {"before": "", **super().fields()}


class AlarmRaised(Entry):
    """An alarm. `kind` is the name of the counted metric."""


class Nominated(Entry):
    """A nomination of the coordinator's node. `coordinator` is "" when no node is nominated."""

    kind: Literal["nomination"] = "nomination"
    coordinator: str
    term: int

    def fields(self) -> dict[str, str]:
        return {"coordinator": "", **super().fields()}


class Rebuilt(Entry):
    """A recovery of an empty table: the controller continues from the published target."""

    kind: Literal["rebuilt"] = "rebuilt"
    revision: int
    members: str = ""


class TargetPublished(Entry):
    kind: Literal["PublishTarget"] = "PublishTarget"
    revision: int
    members: str = ""


class CapacitySet(Entry):
    kind: Literal["SetDesiredCapacity"] = "SetDesiredCapacity"
    group: str
    value: int
    why: str = ""


class ActionDone(Entry):
    """An action that took effect. `kind` is the action's name."""

    value: str = ""
    why: str = ""


class ActionRefused(Entry):
    """An action that AWS refused. `kind` is the action's name, and `detail` is AWS's reason."""

    why: Literal["REFUSED"] = "REFUSED"


class Metered(Entry):
    """The beginning or the end (`state`) of a machine's costs at the time `since`, with the machine's type and role."""

    kind: Literal["machine"] = "machine"
    state: Literal["on", "off"]
    role: str
    type: str
    market: str
    since: float

    @property
    def line(self) -> str:
        """The key by which `metering` recognises an entry that was written before."""
        return f"{self.state} {self.role} {self.type} {self.market}"


class PoolDecided(Entry):
    """One decision about a pool. `inputs` can be passed to `dyntrain pool plan --from-file`."""

    kind: Literal["Rebalance"] = "Rebalance"
    why: str
    dry_run: Literal["yes", "no"]
    current: int
    held: int
    spare: int
    proposal: int
    target: int
    inputs: str


_MODELS: Mapping[str, type[Entry]] = {
    "status": StatusChanged,
    "nomination": Nominated,
    "rebuilt": Rebuilt,
    "PublishTarget": TargetPublished,
    "SetDesiredCapacity": CapacitySet,
    "Rebalance": PoolDecided,
    "machine": Metered,
}
_ACTIONS = frozenset(action.__name__ for action in get_args(Action))


def entry_of(fields: Mapping[str, str]) -> Entry:
    """Parse the output of `Entry.fields`. Raises ValueError, also for an unknown kind."""
    kind = fields.get("kind", "")
    if fields.get("why") == "REFUSED":
        return ActionRefused.model_validate(fields)
    if kind in _MODELS:
        return _MODELS[kind].model_validate(fields)
    if kind in METRICS:
        return AlarmRaised.model_validate(fields)
    if kind in _ACTIONS:
        return ActionDone.model_validate(fields)
    raise ValueError(f"the audit trail has no entries of the kind {kind!r}")


def _as_text(value: object) -> str:
    return "" if value is None else str(value)
