"""How the survivors of a lost worker free themselves: the coordinator's side of the protocol, pure.

In `dist_sync` a server counts the requests for a key and does not ask who sent them. So a blocked survivor's control thread can push the
zeros that the dead worker still owed. (1) All survivors are told to abort and say where they are; none begins another step. (2) While
somebody waits for gradients, one of those pushes zeros from the lowest unanswered gradient on, and all are asked again. (3) Once nobody
waits, the verdict: the furthest position that any survivor had applied stands, later steps are void for everybody alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from training.orders import Order, ToWorker
from training.protocol import Abort, Position, Pump, StepStatus


@dataclass
class Release:
    generation: int
    began: float
    statuses: dict[str, StepStatus] = field(default_factory=dict)
    pumping: str | None = None
    verdict: Position | None = None

    def ask(self, survivors: Collection[str]) -> list[Order]:
        """Where is everybody? What was said before is old."""
        self.statuses, self.pumping = {}, None
        return [ToWorker(instance, Abort(generation=self.generation)) for instance in survivors]

    def said(self, instance: str, status: StepStatus, survivors: Collection[str]) -> list[Order]:
        """Once all have answered: pump if somebody is blocked, else the release is complete."""
        self.statuses[instance] = status
        if self.pumping is not None or set(self.statuses) < set(survivors):
            return []
        blocked = sorted(i for i in survivors if self.statuses[i].phase == "wait")
        if not blocked:
            self.verdict = max((self.statuses[i].position for i in survivors), key=lambda position: (position.step, position.epoch))
            return []
        self.pumping = blocked[0]
        first = min(self.statuses[i].answered for i in blocked)
        return [ToWorker(self.pumping, Pump(generation=self.generation, first=first))]

    def pumped(self, instance: str, survivors: Collection[str]) -> list[Order]:
        return self.ask(survivors) if instance == self.pumping else []

    def lost(self, survivors: Collection[str]) -> list[Order]:
        """More are gone: whatever was known is old, unless the verdict is out."""
        return [] if self.verdict is not None else self.ask(survivors)
