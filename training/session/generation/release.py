"""How the survivors of a lost worker free themselves: the coordinator's side of the protocol, pure.

In `dist_sync` a server counts the requests for a key and does not ask who sent them. So survivors can push the zeros
that the dead worker still owed. (1) All survivors are told to abort and say where they are; none begins another step.
Who waits for sums says so when the servers have its own gradients. (2) While somebody waits, those that have not come
to that exchange fill it with zeros of their own. Then what is not answered is what the lost workers owe, and nothing
else: each survivor pushes that for its share of the gradients, at the same time as the others, and all are asked again.
Where some fill, that goes in windows, as the zeros take memory. (3) Once nobody waits, the verdict: the furthest
position that any survivor had applied stands, later steps are void for everybody alike.

An all-reduce is broken off instead, so nobody waits: each has its sums by then, or they have failed. Who failed in the
step that another had applied already is behind, and fetches that one's state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus
from dyntrain.training.session.orders import Order, ToWorker


@dataclass
class Release:
    generation: int
    workers: int  # of the generation, the lost ones too
    began: float
    stops: bool = False  # the job ends where everybody is free
    statuses: dict[str, StepStatus] = field(default_factory=dict)
    pumping: set[str] = field(default_factory=set)  # who has not said yet that the last order is carried out
    number: int = 0  # of that order: a word about an earlier one is old
    window: int | None = None  # that is filled and mended; None: all at once
    fills: bool = False
    looked_again: bool = False  # whether the answers of those that are behind have come
    verdict: Position | None = None

    def ask(self, survivors: Collection[str]) -> list[Order]:
        """Where is everybody? What was said before is old."""
        self.statuses, self.pumping = {}, set()
        return [ToWorker(instance, Abort(generation=self.generation)) for instance in survivors]

    def answered(self, instance: str, status: StepStatus, survivors: Collection[str]) -> list[Order]:
        """Once all have answered: fill or mend if somebody is blocked, else the release is complete."""
        self.statuses[instance] = status
        if self.pumping or set(self.statuses) < set(survivors):
            return []
        waiting = self._waiting(survivors)
        if not waiting:
            self.verdict = max(
                (self.statuses[i].position for i in survivors), key=lambda position: (position.step, position.epoch)
            )
            return []
        furthest = max(self.statuses[i].exchanges for i in survivors)
        behind = [i for i in waiting if self.statuses[i].exchanges < furthest]
        self.window, self.fills = None, False
        if behind and not self.looked_again:  # another has all sums of that exchange, so theirs are on their way
            self.looked_again = True
            return self.ask(survivors)
        self.looked_again = False
        if behind:  # unless a lost worker that lives was quicker than the zeros in its place
            return self._order(behind, survivors)
        if set(waiting) == set(survivors):
            return self._mend(survivors)
        self.window = 0
        return self._fill(survivors)

    def pumped(self, instance: str, message: Pumped, survivors: Collection[str]) -> list[Order]:
        if instance not in self.pumping or message.number != self.number:
            return []
        self.pumping.remove(instance)
        if self.pumping:
            return []
        if self.fills:
            return self._mend(survivors)
        if self.window is not None and self.window + 1 < self._example(survivors).windows:
            self.window += 1
            return self._fill(survivors)
        return self.ask(survivors)

    def _waiting(self, survivors: Collection[str]) -> list[str]:
        return sorted(i for i in survivors if self.statuses[i].phase == "wait")

    def _example(self, survivors: Collection[str]) -> StepStatus:
        """What all that wait say alike."""
        return self.statuses[self._waiting(survivors)[0]]

    def _fill(self, survivors: Collection[str]) -> list[Order]:
        self.fills = True
        return self._order(sorted(set(survivors) - set(self._waiting(survivors))), survivors)

    def _mend(self, survivors: Collection[str]) -> list[Order]:
        self.fills = False
        return self._order(sorted(survivors), survivors)

    def _order(self, pumping: Collection[str], survivors: Collection[str]) -> list[Order]:
        self.pumping, self.number = set(pumping), self.number + 1
        waiting = [i for i in self._waiting(survivors) if self.fills or i in pumping]
        order = Pump(
            generation=self.generation,
            count=max(1, self.workers - len(survivors)),
            number=self.number,
            fills=self.fills,
            keys=self.statuses[waiting[0]].keys,
            window=self.window,
            shares=len(pumping),
            workers=self.workers,
        )
        return [ToWorker(instance, order.model_copy(update={"share": n})) for n, instance in enumerate(pumping)]

    @property
    def exchanges(self) -> int:
        """That all survivors have ended."""
        return min((status.exchanges for status in self.statuses.values()), default=0)

    @property
    def behind(self) -> frozenset[str]:
        """Who cannot come to the verdict's position by itself."""
        if self.verdict is None:
            return frozenset()
        step = self.verdict.step
        return frozenset(
            i for i, status in self.statuses.items() if status.phase == "failed" and status.position.step < step
        )

    def lost(self, survivors: Collection[str]) -> list[Order]:
        """More are gone: whatever was known is old, unless the verdict is out."""
        return [] if self.verdict is not None else self.ask(survivors)
