"""Frees the survivors from the step in which a worker was lost: the coordinator's side of the protocol. Pure.

In MXNet's `dist_sync` a server counts the requests for a key, regardless of the senders. So survivors can push zeros in
place of the dead worker. (1) All survivors are ordered to begin no further step, and to report their status. A worker
that waits for sums reports when the servers have its own gradients. (2) While a worker waits, the workers that have not
reached its exchange (the sum over all workers) fill this exchange with zeros of their own. Then the unanswered keys are
exactly the keys that the lost workers owe. All survivors push zeros at the same time, each for its share of these keys,
and all are asked again. If some workers fill, the keys are divided into windows, as the zeros take memory. (3) Once no
worker waits, the verdict follows: the furthest position that any survivor has applied is valid, and later steps are
void for all workers.

Horovod's all-reduce is cancelled instead, so no worker waits: a worker's sums have arrived or failed. A worker whose
sums failed in a step that another worker has applied is behind, and fetches that worker's state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus
from dyntrain.training.session.orders import Order, ToWorker


@dataclass
class Release:
    generation: int
    workers: int  # number of the generation's workers, with the lost workers
    began: float  # time of the loss
    stops: bool = False  # whether the job ends once all survivors are free
    statuses: dict[str, StepStatus] = field(default_factory=dict)
    pumping: set[str] = field(default_factory=set)  # workers that have not answered the last order to push zeros
    number: int = 0  # number of the last order to push zeros: answers to earlier orders are stale
    window: int | None = None  # the window of keys in progress; None: all keys at once
    fills: bool = False  # whether workers push their own zeros for an exchange that they have not reached
    asked_again: bool = False  # whether the workers behind were asked again
    verdict: Position | None = None

    def ask(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors for their status; earlier answers are stale."""
        self.statuses, self.pumping = {}, set()
        return [ToWorker(instance, Abort(generation=self.generation)) for instance in survivors]

    def record_status(self, instance: str, status: StepStatus, survivors: Collection[str]) -> list[Order]:
        """Record an answer.

        When all survivors have answered, order zeros if a worker is blocked, else complete the release.
        """
        self.statuses[instance] = status
        if self.pumping or set(self.statuses) < set(survivors):
            return []
        waiting_workers = self._waiting_workers(survivors)
        if not waiting_workers:
            self.verdict = max(
                (self.statuses[survivor].position for survivor in survivors),
                key=lambda position: (position.step, position.epoch),
            )
            return []
        most_exchanges = max(self.statuses[survivor].exchanges for survivor in survivors)
        workers_behind = [
            survivor for survivor in waiting_workers if self.statuses[survivor].exchanges < most_exchanges
        ]
        self.window, self.fills = None, False
        if workers_behind and not self.asked_again:  # another worker has all these sums, so theirs arrive soon
            self.asked_again = True
            return self.ask(survivors)
        self.asked_again = False
        if workers_behind:  # rare: a lost worker is alive and pushed before the zeros in its place
            return self._pump_orders(workers_behind, survivors)
        if set(waiting_workers) == set(survivors):
            return self._push_for_lost(survivors)
        self.window = 0
        return self._fill_window(survivors)

    def pumped(self, instance: str, message: Pumped, survivors: Collection[str]) -> list[Order]:
        if instance not in self.pumping or message.number != self.number:
            return []
        self.pumping.remove(instance)
        if self.pumping:
            return []
        if self.fills:
            return self._push_for_lost(survivors)
        if self.window is not None and self.window + 1 < self._waiting_status(survivors).windows:
            self.window += 1
            return self._fill_window(survivors)
        return self.ask(survivors)

    def _waiting_workers(self, survivors: Collection[str]) -> list[str]:
        return sorted(survivor for survivor in survivors if self.statuses[survivor].phase == "wait")

    def _waiting_status(self, survivors: Collection[str]) -> StepStatus:
        """The status of one waiting worker; all waiting workers have the same keys and windows."""
        return self.statuses[self._waiting_workers(survivors)[0]]

    def _fill_window(self, survivors: Collection[str]) -> list[Order]:
        self.fills = True
        return self._pump_orders(sorted(set(survivors) - set(self._waiting_workers(survivors))), survivors)

    def _push_for_lost(self, survivors: Collection[str]) -> list[Order]:
        self.fills = False
        return self._pump_orders(sorted(survivors), survivors)

    def _pump_orders(self, pumping: Collection[str], survivors: Collection[str]) -> list[Order]:
        self.pumping, self.number = set(pumping), self.number + 1
        waiting_workers = [
            survivor for survivor in self._waiting_workers(survivors) if self.fills or survivor in pumping
        ]
        order = Pump(
            generation=self.generation,
            count=max(1, self.workers - len(survivors)),
            number=self.number,
            fills=self.fills,
            keys=self.statuses[waiting_workers[0]].keys,
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
        """The workers that cannot reach the verdict's position without another worker's state."""
        if self.verdict is None:
            return frozenset()
        step = self.verdict.step
        return frozenset(
            survivor
            for survivor, status in self.statuses.items()
            if status.phase == "failed" and status.position.step < step
        )

    def ask_after_loss(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors again after the loss of one more worker, unless there is a verdict already."""
        return [] if self.verdict is not None else self.ask(survivors)
