"""How the survivors of a lost worker free themselves: the coordinator's side of the protocol, pure.

In `dist_sync` a server counts the requests for a key and does not ask who sent them. So a blocked survivor's control
thread can push the zeros that the dead worker still owed. (1) All survivors are told to abort and say where they are;
none begins another step. (2) While somebody waits for gradients, one of those that are furthest pushes zeros for what
it waits for, for each as many as workers are not at that step, and all are asked again. (3) Once nobody waits, the
verdict: the furthest position that any survivor had applied stands, later steps are void for everybody alike.

An all-reduce is broken off instead, so nobody waits: each has its sums by then, or they have failed. Who failed in the
step that another had applied already is behind, and fetches that one's state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Abort, Position, Pump, StepStatus
from dyntrain.training.session.orders import Order, ToWorker


@dataclass
class Release:
    generation: int
    workers: int  # of the generation, the lost ones too
    began: float
    stops: bool = False  # the job ends where everybody is free
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
            self.verdict = max(
                (self.statuses[i].position for i in survivors), key=lambda position: (position.step, position.epoch)
            )
            return []
        step = max(self.statuses[i].position.step for i in blocked)
        together = [
            i for i in blocked if self.statuses[i].position.step == step
        ]  # to others the answers are on their way
        self.pumping = together[0]
        owed = self.workers - len(together)
        return [ToWorker(self.pumping, Pump(generation=self.generation, count=max(1, owed)))]

    def pumped(self, instance: str, survivors: Collection[str]) -> list[Order]:
        return self.ask(survivors) if instance == self.pumping else []

    @property
    def exchanges(self) -> int:
        """That all survivors have ended."""
        return min((said.exchanges for said in self.statuses.values()), default=0)

    @property
    def behind(self) -> frozenset[str]:
        """Who cannot come to the verdict's position by itself."""
        if self.verdict is None:
            return frozenset()
        step = self.verdict.step
        return frozenset(i for i, said in self.statuses.items() if said.phase == "failed" and said.position.step < step)

    def lost(self, survivors: Collection[str]) -> list[Order]:
        """More are gone: whatever was known is old, unless the verdict is out."""
        return [] if self.verdict is not None else self.ask(survivors)
