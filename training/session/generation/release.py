"""Frees the survivors from the step in which a worker was lost: the coordinator's side of the protocol. Pure.

In MXNet's `dist_sync` a server counts the requests for a key, regardless of their senders. So survivors can push zeros
in place of the dead worker. (1) All survivors are ordered to begin no further step, and to report their status. A
worker that waits for sums reports once the servers have its own gradients. (2) While a worker waits, the workers that
have not reached its exchange (the sum over all workers) fill this exchange with zeros of their own. Then the unanswered
keys are exactly those that the lost workers owe. Each survivor pushes zeros for its share of these keys, at the same
time as the others, and all are asked again. If some workers fill, the keys are divided into windows, as the zeros take
memory. (3) Once no worker waits, the verdict follows: the furthest position that any survivor has applied is valid, and
later steps are void for all.

Horovod's all-reduce is cancelled instead, so no worker waits: its sums have arrived or failed. A worker whose sums
failed in a step that another worker has applied is behind, and fetches that worker's state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus
from dyntrain.training.session.orders import Order, ToWorker


@dataclass
class Release:
    generation: int
    workers: int  # number of the generation's workers, with the lost ones
    began: float
    stops: bool = False  # whether the job ends once all survivors are free
    statuses: dict[str, StepStatus] = field(default_factory=dict)
    pumping: set[str] = field(default_factory=set)  # workers that have not answered the last order to push zeros
    number: int = 0  # of the last order to push zeros: answers to earlier orders are stale
    window: int | None = None  # the window of keys in progress; None: all keys at once
    fills: bool = False
    asked_again: bool = False  # whether the workers behind were asked again
    verdict: Position | None = None

    def ask(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors for their status; earlier answers are stale."""
        self.statuses, self.pumping = {}, set()
        return [ToWorker(instance, Abort(generation=self.generation)) for instance in survivors]

    def answered(self, instance: str, status: StepStatus, survivors: Collection[str]) -> list[Order]:
        """Record an answer. Once all have answered, order zeros if a worker is blocked, else complete the release."""
        self.statuses[instance] = status
        if self.pumping or set(self.statuses) < set(survivors):
            return []
        waiting = self._waiting(survivors)
        if not waiting:
            self.verdict = max(
                (self.statuses[survivor].position for survivor in survivors),
                key=lambda position: (position.step, position.epoch),
            )
            return []
        furthest = max(self.statuses[survivor].exchanges for survivor in survivors)
        behind = [survivor for survivor in waiting if self.statuses[survivor].exchanges < furthest]
        self.window, self.fills = None, False
        if behind and not self.asked_again:  # another worker has all these sums, so theirs arrive soon
            self.asked_again = True
            return self.ask(survivors)
        self.asked_again = False
        if behind:  # rare: a lost worker is alive and pushed before the zeros in its place
            return self._order(behind, survivors)
        if set(waiting) == set(survivors):
            return self._push_for_lost(survivors)
        self.window = 0
        return self._fill(survivors)

    def pumped(self, instance: str, message: Pumped, survivors: Collection[str]) -> list[Order]:
        if instance not in self.pumping or message.number != self.number:
            return []
        self.pumping.remove(instance)
        if self.pumping:
            return []
        if self.fills:
            return self._push_for_lost(survivors)
        if self.window is not None and self.window + 1 < self._example(survivors).windows:
            self.window += 1
            return self._fill(survivors)
        return self.ask(survivors)

    def _waiting(self, survivors: Collection[str]) -> list[str]:
        return sorted(survivor for survivor in survivors if self.statuses[survivor].phase == "wait")

    def _example(self, survivors: Collection[str]) -> StepStatus:
        """The status of one waiting worker; all of them have the same keys and windows."""
        return self.statuses[self._waiting(survivors)[0]]

    def _fill(self, survivors: Collection[str]) -> list[Order]:
        self.fills = True
        return self._order(sorted(set(survivors) - set(self._waiting(survivors))), survivors)

    def _push_for_lost(self, survivors: Collection[str]) -> list[Order]:
        self.fills = False
        return self._order(sorted(survivors), survivors)

    def _order(self, pumping: Collection[str], survivors: Collection[str]) -> list[Order]:
        self.pumping, self.number = set(pumping), self.number + 1
        waiting = [survivor for survivor in self._waiting(survivors) if self.fills or survivor in pumping]
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
        """The number of exchanges that all survivors have finished."""
        return min((status.exchanges for status in self.statuses.values()), default=0)

    @property
    def behind(self) -> frozenset[str]:
        """The workers that cannot reach the verdict's position without another's state."""
        if self.verdict is None:
            return frozenset()
        step = self.verdict.step
        return frozenset(
            survivor
            for survivor, status in self.statuses.items()
            if status.phase == "failed" and status.position.step < step
        )

    def lost(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors again after another loss, unless there is a verdict already."""
        return [] if self.verdict is not None else self.ask(survivors)
