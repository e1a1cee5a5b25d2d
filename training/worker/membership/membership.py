"""The membership interface that the training loop uses, and its implementation for a worker without other workers.

`Membership.join()` returns a CoordinatedMembership if a supervisor started the process, otherwise a Membership.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dyntrain.training.checks.findings import Findings
from dyntrain.training.engine import engine_name, make_engine
from dyntrain.training.protocol.messages import START, Position
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.trial_files import trial_order
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.client import read_control_file
from dyntrain.training.worker.membership.handover import JobState

Key = tuple[str, tuple[int, ...], str]  # name, shape and dtype of a summed array
COORDINATED_METHODS = (
    "enter", "boundary", "rejoin", "step", "exchange", "apply", "all_have_sums", "reach", "average_statistics",
    "intend", "stepped", "finished", "script_ended", "failed", "close",
)  # fmt: skip


class Membership:
    """The membership of a worker without other workers. CoordinatedMembership is for workers with a coordinator."""

    shared = False  # whether the job can have other workers
    probes = False  # whether the first batch is tried in children of this process
    stopping = False  # whether the script wants the job to end after this epoch or segment
    failure_reported = False  # whether the script's error was reported to the coordinator
    over = False  # whether the loop has ended, after its epochs or by a stop
    ended = False  # whether the job has ended: no other loop can follow
    numbered = True  # whether this worker has a rank yet
    local_rank, local_size, cross_rank = 0, 1, 0  # rank among its node's workers, their number, rank of its node
    starts = START  # where the current or next loop over epochs begins

    def __init__(self, kvstore: ElasticKVStore) -> None:
        self.kvstore = kvstore
        self.findings = Findings()  # of the checks, about this process's script
        self.segment_steps: int | None = None
        self.first_step = 0
        self.expects: Callable[[Position, int, int], None] = lambda position, number, workers: None
        """Called while a generation forms, with its position, this worker's number and the number of workers."""
        self.in_hand: Callable[[], str | None] = lambda: None
        """Describes the script's part of the batch, as a note to an error of the script."""
        self._metrics: dict[str, tuple[float, float]] = {}

    @property
    def output(self) -> Path:
        """The folder for the files that the script saves."""
        trial = trial_order()
        return Path("output") if trial is None else trial.folder / "output"

    @property
    def writes(self) -> bool:
        """Whether this worker is the one whose script writes files.

        Raises RuntimeError while the job has not chosen the worker that writes.
        """
        return True

    @staticmethod
    def join(kind: str, engine: str | None = None) -> Membership:
        """Make the membership of this process.

        Raises ValueError for an unknown engine, and ImportError if the engine is not installed.
        """
        from dyntrain.training.worker.membership.coordinated import CoordinatedMembership  # a subclass of this class

        engine_kind, control_file = engine_name(engine), read_control_file()
        if control_file is None:
            return Membership(ElasticKVStore(None))
        return CoordinatedMembership(control_file, make_engine(engine_kind, kind, control_file.private_ip))

    def enter(
        self,
        state: JobState,
        *,
        epochs: int,
        samples: int,
        global_batch: int,
        seed: int,
        batching: str,
        keys: Sequence[Key] = (),
        drawn_from: int | None = None,
        another: bool = False,
    ) -> Position:
        """Block until this worker is a member of the job, or until the loop is found to be `over`.

        Returns the job's position.

        Sends the coordinator the settings that must be equal on all workers. `keys` describes the arrays that are
        summed in addition to the gradients. `drawn_from` is the dataset's number of samples if an epoch leaves out some
        samples, otherwise None. `another` says whether the script may begin another loop.
        """
        self.over = self.stopping = False
        return self.starts

    def boundary(self, position: Position) -> Position:
        """Check in after an epoch or segment, and block until the coordinator orders how to continue.

        Returns the position to continue at.

        Raises SystemExit(0) if the coordinator orders this worker to leave before the job's end.
        """
        self._metrics.clear()
        self.over = self.stopping
        return position

    @property
    def broken(self) -> bool:
        """Whether a member was lost, so that `rejoin` must be called before the next step."""
        return False

    def rejoin(self, position: Position) -> Position:
        """Block until the survivors have formed the next generation.

        Returns the first position of the new generation.
        """
        return position

    def step(
        self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]
    ) -> bool:
        """Push the gradients, and update the parameters with the sums.

        Returns False if the step is void, so that the job does not reach the position `after`.
        """
        push()
        update()
        return True

    def exchange(
        self, keys: Sequence[str], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        """Push `arrays`, which are in the order of `keys`, and wait until each array contains its sum over all workers.

        Returns False if nothing was pushed or the sums are lost, and then a new generation must be formed. If the
        result is True, call `apply`, which knows whether the sums are valid. `aside` says that the arrays are not a
        step's gradients, so the time of the exchange is not measured.
        """
        push()
        return True

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        """Update the parameters with the sums of the last exchange. Returns False if the sums are void.

        `after` is the job's position after the step. If `reaches` is false, the job reaches `after` only when `reach`
        is called.
        """
        update()
        return True

    def all_have_sums(self, exchange_again: Callable[[], bool]) -> bool:
        """Whether every survivor has the sums of the last exchange.

        If necessary, `exchange_again` is called, which makes one more exchange that succeeds only if every
        survivor has the sums.
        """
        return True

    def reach(self, after: Position) -> bool:
        """Complete a step after all its updates.

        If the step is void, returns False, and the caller must undo the updates.
        """
        return True

    def average_statistics(self, position: Position) -> None:
        """Replace BatchNorm's running statistics by their averages over all workers, weighted by samples.

        All workers must call this method after the same epoch or segment.
        """

    def forked(self, leave: Callable[..., NoReturn]) -> None:
        """Prepare a forked child, which must not communicate: its communicating methods call `leave` instead."""
        for method_name in COORDINATED_METHODS:
            setattr(self, method_name, leave)

    @property
    def generation(self) -> int:
        """The number of the present generation (group of workers), or 0 for a worker without a coordinator."""
        return 0

    def intend(self, position: Position, indices: Indices) -> None:
        """Write the samples that this worker is about to train on to the ledger."""

    def count(self, samples: int) -> None:
        """Count samples that cannot be listed in the ledger, as the user's own iterator chose the samples."""

    def take_back(self, count: int) -> None:
        """Subtract the `count` samples of a void step from the counted samples."""

    def stepped(self, position: Position) -> None:
        """Report that the update of a step was started. `position` is the job's position after the step."""

    def record(self, name: str, total: float, count: float) -> None:
        earlier_sums = self._metrics.get(name, (0.0, 0.0))
        self._metrics[name] = (earlier_sums[0] + total, earlier_sums[1] + count)

    def finished(self, position: Position) -> None:
        """Report that the script's loop over epochs has ended without an error, at `position`."""
        self.starts = position.next_loop_start

    def script_ended(self) -> None:
        """Report that the script begins no further loop, and block until all workers' scripts have ended.

        This method is also called when the process exits.
        """
        self.ended = True

    def failed(self, error: BaseException) -> None:
        """Report the script's error to the coordinator before the process ends."""

    def close(self) -> None:
        """Release all resources. `close` may be called twice."""
