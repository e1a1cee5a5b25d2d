"""A world in which processes die and calls fail between any two effects, others act meanwhile, and reads lag behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.errors import RetryLater
from fakes import Machine, World

DESCRIBE_LAG = 5.0  # less than the settling margin
ENDING = ("instances.terminate", "groups.terminate")
EFFECTS = (
    "instances.tag",
    "instances.terminate",
    "groups.complete",
    "groups.terminate",
    "groups.protect",
    "parameters.put_target",
)


class Crash(BaseException):
    """The process dies here: nothing in it can do anything about that."""


class ShakyWorld(World):
    """`fuse`: at which call from now on it fails, with `bomb`; `late`: a write of the table then takes effect first;
    `effects`: only what changes something in AWS counts.

    `meanwhile`: what others do at which call from now on.
    """

    def __init__(self, *clusters: str, **policy: Any) -> None:
        self.fuse: int | None = None
        self.bomb: Exception = Crash()
        self.late = False
        self.effects = False
        self.meanwhile: tuple[int, Callable[[], None]] | None = None
        self.behind: dict[str, tuple[float, Machine]] = {}
        self.wishes: dict[str, set[str]] = {}
        super().__init__(*clusters, **policy)

    def called(self, name: str, *arguments: str) -> None:
        self.now += 0.001
        self._others_act()
        if not (self.late and name.endswith(".put")) and (name in EFFECTS or not self.effects):
            self._burn()
        if name in ENDING:
            self._nobody_wants(arguments)
        super().called(name, *arguments)

    def written(self, key: tuple[str, str], value: Any, version: int, image: dict[str, Any]) -> None:
        super().written(key, value, version, image)
        if self.late:
            self._burn()

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise self.bomb

    def _others_act(self) -> None:
        if self.meanwhile is None:
            return
        left, act = self.meanwhile
        self.meanwhile = (left - 1, act) if left > 0 else None
        if self.meanwhile is None:
            kept, self.fuse = self.fuse, None
            act()
            self.fuse = kept

    # ---- reads that lag

    def changing(self, instance: str) -> None:
        """Describe calls go on to show the instance as it is now, for a while."""
        machine = self.machines[instance]
        self.behind[instance] = (self.now + DESCRIBE_LAG, replace(machine, tags=dict(machine.tags)))

    def shown(self, instance: str) -> Machine:
        until, machine = self.behind.get(instance, (0.0, None))
        return machine if machine is not None and self.now < until else self.machines[instance]

    # ---- what must not happen to anybody

    def remember_wishes(self) -> None:
        """Which instances are tagged, and known to be: the table has their latest tag event."""
        self.wishes = {
            cluster: {name for name, machine in self.machines.items() if self._table_shows_tag(name, machine, cluster)}
            for cluster in ("demo", "other")
        }

    def _table_shows_tag(self, name: str, machine: Machine, cluster: str) -> bool:
        facts = self.table.get(("node", name), (None, 0))[0]
        known = facts is not None and facts.tags_event is not None and facts.tags_event.version == machine.tag_version
        return known and ELASTIC_TAG.of(cluster) in machine.tags

    def _nobody_wants(self, arguments: tuple[str, ...]) -> None:
        for name in arguments:
            wished = [
                cluster
                for cluster, names in self.wishes.items()
                if name in names and ELASTIC_TAG.of(cluster) in self.machines[name].tags
            ]
            assert not wished, f"{name} is ended, though it is tagged and the table knew it before"


def throttled() -> Exception:
    return RetryLater("Throttling")
