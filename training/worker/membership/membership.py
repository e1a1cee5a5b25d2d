"""A worker's part in the job's membership: what the training loop asks, and the answers of a worker that is alone.

`Membership.join()` gives the coordinated one under a supervisor, and one that is always alone without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dyntrain.training.checks.findings import Findings
from dyntrain.training.engine import engine_name, make_engine
from dyntrain.training.protocol.messages import START, Position
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.trial_files import order as trial_order
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.client import read_control_file
from dyntrain.training.worker.membership.handover import JobState

Key = tuple[str, tuple[int, ...], str]  # name, shape, dtype
PLACES = (
    "enter", "boundary", "rejoin", "step", "exchange", "apply", "all_have_it", "reach", "average_statistics", "intend",
    "stepped", "finished", "script_ended", "failed", "close",
)  # fmt: skip


class Membership:
    """Alone: one worker, for ever. Each method is what a coordinated worker overrides."""

    shared = False  # whether there can be others
    probes = False  # whether the first batch is tried in children of this process
    stopping = False  # whether the script wants the job to end at the next boundary
    told_failure = False  # whether the coordinator knows what the script raised
    over = False  # whether the loop has ended, at the end of its epochs or where it was stopped
    ended = False  # whether the job has: no other loop can follow
    numbered = True  # whether this worker has a rank yet
    local_rank, local_size, cross_rank = 0, 1, 0  # of its node's workers, how many they are, and which node it is
    starts = START  # where the loop over epochs that is next, or at hand, begins

    def __init__(self, kvstore: ElasticKVStore) -> None:
        self.kvstore = kvstore
        self.findings = Findings()  # of the rules, in this process's script
        self.segment_steps: int | None = None
        self.first_step = 0
        self.expects: Callable[[Position, int, int], None] = lambda position, number, workers: None
        """Told where the next generation begins, and as which number of how many workers, while it is being formed."""
        self.in_hand: Callable[[], str | None] = lambda: None
        """What the script has of a batch, to stand beside an error of its own."""
        self._metrics: dict[str, tuple[float, float]] = {}

    @property
    def output(self) -> Path:
        """Where the script keeps what is to stay."""
        trial = trial_order()
        return Path("output") if trial is None else trial.folder / "output"

    @property
    def writes(self) -> bool:
        """Whether this worker's script writes what is for all. Raises RuntimeError where nobody can know yet."""
        return True

    @staticmethod
    def join(kind: str, engine: str | None = None) -> Membership:
        """Raises ValueError for an unknown engine, and ImportError for one that is not installed."""
        from dyntrain.training.worker.membership.coordinated import CoordinatedMembership  # which is one of these

        name, control = engine_name(engine), read_control_file()
        if control is None:
            return Membership(ElasticKVStore(None))
        return CoordinatedMembership(control, make_engine(name, kind, control.private_ip))

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
        """Blocks until this worker is a member, or the loop is `over` already; returns where the job is. What all
        workers must have in common goes to the coordinator. `keys`: what else than gradients is summed. `drawn_from`:
        samples of the dataset, where an epoch leaves some out. `another`: whether the script may have another loop.
        """
        self.over = self.stopping = False
        return self.starts

    def boundary(self, position: Position) -> Position:
        """Blocks until the coordinator says how it goes on; SystemExit(0) when this worker is to leave before the job's
        end.
        """
        self._metrics.clear()
        self.over = self.stopping
        return position

    @property
    def broken(self) -> bool:
        """Whether a member was lost: no step can be made before `rejoin`."""
        return False

    def rejoin(self, position: Position) -> Position:
        """Blocks until the survivors have formed the next generation; returns where it begins."""
        return position

    def step(
        self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None]
    ) -> bool:
        """Push the gradients, update with their sums. False: the step is void, `after` is not reached."""
        push()
        update()
        return True

    def exchange(
        self, keys: Sequence[str], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        """Push, and wait for the sums: `arrays`, of the same order as `keys`. False: nothing was pushed, as a new
        generation follows. After True `apply` must follow, which knows whether the sums hold. `aside`: what is summed
        is not a step's gradients, whose time is measured.
        """
        push()
        return True

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        """Update with the sums of the last exchange. False: they are void. `after` is where the job is then; unless
        `reaches`, only once `reach` says so too.
        """
        update()
        return True

    def all_have_it(self, again: Callable[[], bool]) -> bool:
        """Whether what the last exchange brought here came to all who go on. `again` makes one more, which says so."""
        return True

    def reach(self, after: Position) -> bool:
        """All updates of the step are made. False: it is void, and they must be taken back."""
        return True

    def average_statistics(self, position: Position) -> None:
        """Make BatchNorm's running statistics those of all workers' samples since the last boundary. All workers must
        come, at one boundary.
        """

    def forked(self, leave: Callable[..., NoReturn]) -> None:
        """In a child of this process, for which nobody waits: whatever would be said to others, `leave` comes in its
        place.
        """
        for name in PLACES:
            setattr(self, name, leave)

    @property
    def generation(self) -> int:
        """The number of the present formation; 0 alone."""
        return 0

    def intend(self, position: Position, indices: Indices) -> None:
        """To the ledger: what this worker is about to train on."""

    def count(self, samples: int) -> None:
        """Samples that no ledger can name: the user's own iterator chose them."""

    def take_back(self, count: int) -> None:
        """The step that `count` samples were meant for is void."""

    def stepped(self, position: Position) -> None:
        """A step's update is issued; `position` is after it."""

    def record(self, name: str, total: float, count: float) -> None:
        before = self._metrics.get(name, (0.0, 0.0))
        self._metrics[name] = (before[0] + total, before[1] + count)

    def finished(self, position: Position) -> None:
        """The loop has ended well, here."""
        self.starts = position.next_loop

    def script_ended(self) -> None:
        """No other loop follows. Blocks until all workers have come so far; at the process' end it is said anyway."""
        self.ended = True

    def failed(self, error: BaseException) -> None:
        """The script raised this, and the process will end."""

    def close(self) -> None:
        """Let go of everything; safe to call twice."""
