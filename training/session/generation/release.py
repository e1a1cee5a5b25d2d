"""Frees the surviving workers from a step in which another worker was lost: the coordinator's side. Pure.

In MXNet's `dist_sync` mode a server completes the sum for a key when the number of requests for this key equals the
number of workers, regardless of the senders. So the survivors can push zeros in place of the dead worker. First, all
survivors are ordered to begin no further step, and to report their status. A worker that waits for summed gradients
reports once the servers have its own gradients. Second, while a worker waits inside an exchange (the sum over all
workers), the workers that have not reached this exchange push zeros as their own part. Once workers have pushed zeros
as their own part, the servers' unanswered keys are exactly the keys for which the lost workers' gradients are missing.
All survivors push zeros for the missing gradients at the same time, each for its share of the keys, and all are asked
for their status again. If some workers push zeros as their own part, the keys are divided into windows, as the zeros
take memory. Third, once no worker waits, the coordinator gives the verdict: the furthest position that any survivor has
applied is valid, and later steps are void for all workers.

With Horovod, no worker waits, as the all-reduce is cancelled: each worker's sums have arrived or failed. If a worker's
sums failed in a step that another worker has applied, the worker fetches the other worker's state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus
from dyntrain.training.session.orders import Order, ToWorker


@dataclass
class Release:
    generation: int  # number of the generation that lost a worker
    workers: int  # number of the generation's workers, with the lost workers
    began: float  # time of the loss
    stops: bool = False  # whether the job ends once all survivors are free
    statuses: dict[str, StepStatus] = field(default_factory=dict)  # the survivors' last answers
    pumping: set[str] = field(default_factory=set)  # workers that have not answered the last order to push zeros
    number: int = 0  # number of the last order to push zeros: answers to earlier orders are stale
    window: int | None = None  # the window of keys in progress; None: all keys at once
    fills: bool = False  # whether workers push their own zeros for an exchange that they have not reached
    asked_again: bool = False  # whether the workers behind were asked again
    verdict: Position | None = None  # last valid position, once it is decided

    def ask_status(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors for their status; answers to earlier questions are ignored."""
        self.statuses, self.pumping = {}, set()
        return [ToWorker(instance_id, Abort(generation=self.generation)) for instance_id in survivors]

    def record_status(self, instance: str, status: StepStatus, survivors: Collection[str]) -> list[Order]:
        """Record a survivor's answer to the question about its status.

        When all survivors have answered, order survivors to push zeros if a worker is blocked, else decide the verdict.
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
            return self.ask_status(survivors)
        self.asked_again = False
        if workers_behind:  # rare: a lost worker is alive and pushed before the zeros in its place
            return self._pump_orders(workers_behind, survivors)
        if set(waiting_workers) == set(survivors):
            return self._push_for_lost_workers(survivors)
        self.window = 0
        return self._fill_window(survivors)

    def record_pumped(self, instance: str, message: Pumped, survivors: Collection[str]) -> list[Order]:
        if instance not in self.pumping or message.number != self.number:
            return []
        self.pumping.remove(instance)
        if self.pumping:
            return []
        if self.fills:
            return self._push_for_lost_workers(survivors)
        if self.window is not None and self.window + 1 < self._waiting_status(survivors).windows:
            self.window += 1
            return self._fill_window(survivors)
        return self.ask_status(survivors)

    def _waiting_workers(self, survivors: Collection[str]) -> list[str]:
        return sorted(survivor for survivor in survivors if self.statuses[survivor].phase == "wait")

    def _waiting_status(self, survivors: Collection[str]) -> StepStatus:
        """Return the status of one worker that waits for sums; all such workers have the same keys and windows."""
        return self.statuses[self._waiting_workers(survivors)[0]]

    def _fill_window(self, survivors: Collection[str]) -> list[Order]:
        self.fills = True
        return self._pump_orders(sorted(set(survivors) - set(self._waiting_workers(survivors))), survivors)

    def _push_for_lost_workers(self, survivors: Collection[str]) -> list[Order]:
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
        return [ToWorker(instance_id, order.model_copy(update={"share": n})) for n, instance_id in enumerate(pumping)]

    @property
    def finished_exchanges(self) -> int:
        """The number of exchanges (sums over all workers) that all survivors have finished."""
        return min((status.exchanges for status in self.statuses.values()), default=0)

    @property
    def workers_behind(self) -> frozenset[str]:
        """The workers that can reach the verdict's position only by fetching another worker's state."""
        if self.verdict is None:
            return frozenset()
        step = self.verdict.step
        return frozenset(
            survivor
            for survivor, status in self.statuses.items()
            if status.phase == "failed" and status.position.step < step
        )

    def ask_after_loss(self, survivors: Collection[str]) -> list[Order]:
        """Ask all survivors for their status again after the loss of one more worker, if no verdict is decided."""
        return [] if self.verdict is not None else self.ask_status(survivors)
