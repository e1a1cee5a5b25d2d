"""The audit trail: changes and actions, one model per kind. `kind` names it in the table and in `dyntrain events`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from dyntrain.controller.core.decisions.actions import Action
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.core.records.registers import Fact


class Entry(Fact):
    """Base of all entries. `instance` is "" for an entry about no instance."""

    kind: str
    instance: str = ""
    detail: str = ""

    def fields(self) -> dict[str, str]:
        """The fields as text, in reading order; empty ones are left out."""
        return {name: text for name, value in self if (text := _as_text(value))}


class StatusChanged(Entry):
    """A change of status. Both values are `Standing.line`."""

    kind: Literal["status"] = "status"
    before: str
    after: str

    def fields(self) -> dict[str, str]:
        return {"before": "", **super().fields()}


class AlarmRaised(Entry):
    """An alarm; `kind` is the metric that was counted."""


class Nominated(Entry):
    """A nomination of the coordinator's node; "" for nobody."""

    kind: Literal["nomination"] = "nomination"
    coordinator: str
    term: int

    def fields(self) -> dict[str, str]:
        return {"coordinator": "", **super().fields()}


class Rebuilt(Entry):
    """A recovery: the table was empty, and the published target was taken over to continue from."""

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
    """An action that took effect; `kind` is its name."""

    value: str = ""
    why: str = ""


class ActionRefused(Entry):
    """An action that AWS refused; `kind` is its name, `detail` AWS's reason."""

    why: Literal["REFUSED"] = "REFUSED"


class Metered(Entry):
    """The beginning or, by `state`, the end of a machine's costs from `since` on, with its type and role."""

    kind: Literal["machine"] = "machine"
    state: Literal["on", "off"]
    role: str
    type: str
    market: str
    since: float

    @property
    def line(self) -> str:
        """The key by which `metering` recognises a known entry."""
        return f"{self.state} {self.role} {self.type} {self.market}"


class PoolDecided(Entry):
    """One decision about a pool. `inputs` is what `dyntrain pool plan --from-file` takes."""

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
    """Parse what `Entry.fields` wrote. Raises ValueError, also for an unknown kind."""
    kind = fields.get("kind", "")
    if fields.get("why") == "REFUSED":
        return ActionRefused.model_validate(fields)
    if kind in _MODELS:
        return _MODELS[kind].model_validate(fields)
    if kind in METRICS:
        return AlarmRaised.model_validate(fields)
    if kind in _ACTIONS:
        return ActionDone.model_validate(fields)
    raise ValueError(f"there is no entry of the audit trail of the kind {kind!r}")


def _as_text(value: object) -> str:
    return "" if value is None else str(value)
