"""The audit trail: what changed and what was done, a model each kind. `kind` says which, in the table and in
`dyntrain events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from dyntrain.controller.core.decisions.actions import Action
from dyntrain.controller.core.decisions.alarms import METRICS
from dyntrain.controller.core.known.registers import Fact


class Entry(Fact):
    """Base of all entries. `instance` "" where an entry is about none."""

    kind: str
    instance: str = ""
    detail: str = ""

    def fields(self) -> dict[str, str]:
        """As text, in the order in which people read them; empty ones are left out."""
        return {name: text for name, value in self if (text := _text(value))}


class StatusChanged(Entry):
    """From and to are `Standing.line`."""

    kind: Literal["status"] = "status"
    before: str
    after: str

    def fields(self) -> dict[str, str]:
        return {"before": "", **super().fields()}


class AlarmRaised(Entry):
    """`kind` is the metric that was counted."""


class Nominated(Entry):
    """Who is to run the coordinator; "" for nobody."""

    kind: Literal["nomination"] = "nomination"
    coordinator: str
    term: int

    def fields(self) -> dict[str, str]:
        return {"coordinator": "", **super().fields()}


class Rebuilt(Entry):
    """The table was empty: the target was taken over as it is published, for the controller to go on from there."""

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
    """`kind` is the action's name."""

    value: str = ""
    why: str = ""


class ActionRefused(Entry):
    """AWS said no to the action that `kind` names; `detail` is its reason."""

    why: Literal["REFUSED"] = "REFUSED"


class Metered(Entry):
    """From `since` on the instance costs money, or does not any more: then the other fields tell as what it did."""

    kind: Literal["machine"] = "machine"
    state: Literal["on", "off"]
    role: str
    type: str
    market: str
    since: float

    @property
    def line(self) -> str:
        """By which `metering` knows what was told."""
        return f"{self.state} {self.role} {self.type} {self.market}"


class PoolDecided(Entry):
    """One look at a pool. `inputs` is what `dyntrain pool plan --from-file` takes."""

    kind: Literal["Rebalance"] = "Rebalance"
    why: str
    dry_run: Literal["yes", "no"]
    current: int
    held: int
    spare: int
    proposal: int
    target: int
    inputs: str


_ALONE: Mapping[str, type[Entry]] = {
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
    """What `Entry.fields` wrote. Raises ValueError, also for a kind that there is none of."""
    kind = fields.get("kind", "")
    if fields.get("why") == "REFUSED":
        return ActionRefused.model_validate(fields)
    if kind in _ALONE:
        return _ALONE[kind].model_validate(fields)
    if kind in METRICS:
        return AlarmRaised.model_validate(fields)
    if kind in _ACTIONS:
        return ActionDone.model_validate(fields)
    raise ValueError(f"there is no entry of the audit trail of the kind {kind!r}")


def _text(value: object) -> str:
    return "" if value is None else str(value)
