"""Elastic training loop of a script: its position in the job, its training state, and its epochs.

A *step* is one batch over all workers. In a step, each trainer may sum its gradients and update its weights at most
once. An update takes effect before the step's end, because a GAN's second network is trained against the new weights of
its first network. While a trainer's gradients accumulate over batches, the trainer neither sums nor updates. A step is
*void* if a worker is lost before all workers agree on the step's last update. After a void step, all workers restore
their state at the *anchor*, which is the last position without an unfinished step. Then the workers repeat the batches
since the anchor.
"""

from __future__ import annotations

import logging
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.checks.findings import Findings
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.worker.data.loading import JobLoaders
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.agreed.reduction import REDUCE
from dyntrain.training.worker.loop.agreed.totals import Totals
from dyntrain.training.worker.loop.batch.consensus import consensus_keys
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.batch.groups import batches_per_update
from dyntrain.training.worker.loop.batch.owners import ArrayOwners
from dyntrain.training.worker.loop.batch.parts import refuse_undividable_batches
from dyntrain.training.worker.loop.batch.rows import ROWS_ACCUMULATE_ERROR, Rows, refuse_rows
from dyntrain.training.worker.loop.batch_feeder import BatchFeeder
from dyntrain.training.worker.loop.checks.gradients import Gradients
from dyntrain.training.worker.loop.checks.losses import Losses
from dyntrain.training.worker.loop.checks.running_statistics import RunningStatistics
from dyntrain.training.worker.loop.instrument import Listener, Listeners, instrument
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.loop.probe_child import ProbeChild
from dyntrain.training.worker.loop.record.fingerprints import is_compared_step
from dyntrain.training.worker.loop.slices import Slices, refuse_means
from dyntrain.training.worker.loop.steps import Steps
from dyntrain.training.worker.loop.trainer import ElasticTrainer, OnlyJobTrainers, refuse_lbsgd
from dyntrain.training.worker.loop.trial import this_trial
from dyntrain.training.worker.loop.undone.undo import Undo
from dyntrain.training.worker.loop.undone.writes import Writes
from dyntrain.training.worker.loop.updates import Updates
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.kept import KeptArrays
from dyntrain.training.worker.state.memory import Memories
from dyntrain.training.worker.state.training_state import TrainingState

STOPPED_WARNING = (
    "the job stops here by another worker's job.stop(), which this worker did not call: decide by epoch.reduce(name, "
    "total, count), which is the same on all workers"
)
log = logging.getLogger(__name__)


class TrainingLoop:
    """One loop over epochs.

    A loop has the nets, memory and kept arrays of the script's previous loop. A loop also takes over trainers, rows and
    loaders of the previous loop, unless the script makes new ones.
    """

    def __init__(self, membership: Membership, previous_loop: TrainingLoop | None = None) -> None:
        self.membership, self._previous_loop = membership, previous_loop
        self.trainers: list[ElasticTrainer] = []
        self.position = self.anchor = self.starts = membership.starts
        self.current: CurrentBatch | None = None  # the script's current batch
        self._state: TrainingState | None = None
        self._earlier_parameters: list[Any] = []  # parameters of the loops before
        self.shares = Shares(0, 0, 0, FixedGlobal(1))
        self.config = LoopConfig()
        self.updates, self.totals = Updates(self, self.config), Totals(self)
        self.feeder, self.steps = BatchFeeder(self), Steps(self)
        self._undo: Undo | None = None
        self.losses, self.gradients, self.running_statistics = Losses(self), Gradients(self), RunningStatistics(self)
        self._listeners: Listeners | None = None
        self.keeps: list[Any] = (
            previous_loop.keeps if previous_loop else []
        )  # arrays and nets that the script keeps besides nets and trainers
        self.rows: list[Rows] = []
        self.loading = JobLoaders()
        self.memories: Memories = previous_loop.memories if previous_loop else Memories()
        self.probe_child: ProbeChild | None = None  # in a child that tries the first batch
        self.trial = this_trial()  # set in runs of `dyntrain check`

    @property
    def findings(self) -> Findings:
        return self.membership.findings

    @property
    def refusal(self) -> str | None:
        """The reason why this worker refuses the script, or None. The next sum of gradients reports the refusal to all
        workers.
        """
        return self.findings.stop_messages

    @property
    def state(self) -> TrainingState:
        if self._state is None:
            raise RuntimeError("the job has no state yet: make this call inside `for epoch in job.epochs(...)`")
        return self._state

    @property
    def undo(self) -> Undo:
        assert self._undo is not None
        return self._undo

    @property
    def owners(self) -> ArrayOwners:
        """The trainers that own an array as weight, gradient or optimizer state, looked up once for each batch."""
        assert self.current is not None
        return self.current.owners(self.trainers)

    @property
    def seed(self) -> int:
        return self.shares.seed

    @property
    def epoch_number(self) -> int:
        """Number of the current epoch, as the script counts epochs."""
        return self.shares.shift + self.position.epoch

    @property
    def batch_number(self) -> int:
        """Number of the current batch in its epoch."""
        return self.shares.batch_number(self.position, self.workers)

    @property
    def place_in_epoch(self) -> tuple[int, bool]:
        """Number of the current batch in its epoch, and whether it is the epoch's last batch."""
        return self.batch_number, self.position_after.epoch > self.position.epoch

    @property
    def group_size(self) -> int:
        """Batches per update."""
        return self.shares.group

    @property
    def update_due(self) -> bool:
        """Whether the current batch is the last batch of its update, so that the trainers must step."""
        batch_number, is_last = self.place_in_epoch
        return is_last or (batch_number + 1) % self.group_size == 0

    @property
    def divides_batches(self) -> bool:
        """Whether the script gets a share in parts if the share has more than `local_batch_at_most` samples."""
        return self.config.local_batch_at_most is not None

    @property
    def rank(self) -> int:
        return self.membership.kvstore.rank

    @property
    def workers(self) -> int:
        return self.membership.kvstore.num_workers

    @property
    def segment_steps(self) -> int | None:
        return self.membership.segment_steps if self.config.changes == "any" else None

    @property
    def step_samples(self) -> int:
        """Number of samples of a full step over all workers, in the present generation (group of workers)."""
        return self.shares.step_samples(self.workers)

    @property
    def position_after(self) -> Position:
        return self.shares.after(self.position, self.workers)

    @property
    def all_steps_made(self) -> bool:
        return self.config.steps is not None and self.position.step - self.starts.step >= self.config.steps

    @property
    def compares_numbers(self) -> bool:
        """Whether the workers compare the numbers that multiply or divide their losses at this step."""
        return self.workers > 1 and (
            self.shares.is_first_step(self.position) or is_compared_step(self.position.step, self.shares.begins)
        )

    # ---- the course of the loop

    def inherit_from_previous(self) -> None:
        """Take over from the previous loop its trainers, rows and loaders, each unless the script has made new ones."""
        previous_loop, self._previous_loop = self._previous_loop, None
        if previous_loop is None:
            return
        self._earlier_parameters = previous_loop.state.parameters
        if not self.trainers:
            self.trainers = previous_loop.trainers
            for trainer in self.trainers:
                trainer.loop = self
        if not self.rows:
            self.rows = previous_loop.rows
        if self.loading.loaders:
            previous_loop.loading.close()
        else:
            self.loading = previous_loop.loading

    def begin(self, net: Any, config: LoopConfig) -> None:
        """Begin the loop. Blocks until this worker is a member of the job, or the loop is known to be over."""
        self.config = config
        self.membership.expects, self.membership.in_hand = self._expect_generation, self._error_hint
        self.shares = config.shares(self.loading.sequence)
        self.loading.set_shares(self.shares, config.local_batch_at_most)
        self.shares.group = batches_per_update(self.trainers, config.batching)
        self.updates = Updates(self, config)
        self._state = TrainingState(net, *self.trainers, kept=KeptArrays(*self.keeps), beside=self._earlier_parameters)
        self._undo = Undo(self._state, self.memories)
        checks: list[Listener] = [self.losses, self.gradients, self.running_statistics]
        self._listeners = Listeners(
            Writes(self), Slices(), OnlyJobTrainers(), *([] if self.findings.is_off else checks)
        )
        instrument.install(self._listeners)
        self.memories.keep(self._state.own)
        self._refuse_conflicts()
        refuse_rows(self.rows, config)
        consensus_arrays = consensus_keys(self.trainers, flags=len(self._state.equal))
        self.arrive(
            self.membership.enter(
                self._state,
                epochs=config.end_epoch,
                samples=config.samples,
                drawn_from=config.drawn_from,
                global_batch=config.batching.batch,
                seed=config.seed,
                batching=config.shared_settings(self.loading.sequence, self.group_size),
                another=config.another,
                keys=[*consensus_arrays, *(key for rows in self.rows for key in rows.summed_keys()), REDUCE],
            )
        )
        self._between_epochs()
        if self.trial is not None:
            self.trial.begin_loop(self)

    def end(self) -> None:
        """Restore the attributes of MXNet that this loop replaced, unless another loop in this process uses them."""
        if self._listeners is not None:
            instrument.remove(self._listeners)
            self._listeners = None

    def _refuse_conflicts(self) -> None:
        """Raise ValueError if the script uses options of the job that exclude each other."""
        if self.config.local_batch_at_most is not None:
            refuse_undividable_batches(self.trainers, self.state.accumulated)
        refuse_lbsgd(self.trainers)
        refuse_means(self.trainers, self.state.accumulated)
        if self.rows and self.group_size == 1 and self.state.accumulated:
            raise ValueError(ROWS_ACCUMULATE_ERROR)

    def _error_hint(self) -> str | None:
        return None if self.current is None else self.current.error_hint(self.batch_number, self.epoch_number)

    @property
    def epoch_resumed(self) -> bool:
        """Whether the current epoch was begun before, by the script in this process or in another worker's process."""
        return bool(self.state.own.get("entered") == self.position.epoch)

    def end_epoch(self) -> None:
        """Check in with the coordinator after the script's own lines at the end of an epoch, such as a validation."""
        self.memories.keep(self.state.own)
        self.undo.put_back_parameters()
        self.check_in()
        while self.membership.stopping and not self.membership.over:
            # A worker lost in the script's validation caused a new generation, before the coordinator knew of the stop.
            self.check_in()
        self._between_epochs()

    def check_in(self) -> None:
        """Check in with the coordinator at a boundary, where workers may join or leave."""
        was_stopping = self.membership.stopping
        self.arrive(self.membership.boundary(self.position))
        if self.membership.over and not was_stopping and self.position.epoch < self.config.end_epoch:
            log.warning(STOPPED_WARNING)

    def _between_epochs(self) -> None:
        """Make the accumulated gradients visible on all workers until the script has begun the next epoch.

        So if the script sets accumulated gradients to zero between epochs, the gradients become zero on all workers.
        """
        self.state.carried.resume(takes=True)

    def enter_epoch(self, number: int) -> None:
        """Continue after the script's own lines at the begin of the epoch, which may set a learning rate or unfreeze
        layers.

        If the epoch was begun before, the script's lines at the begin of the epoch have run twice in the job, and the
        values set by the first run are restored.
        """
        state = self.state
        self._refuse_conflicts()  # the script may have changed an option at the begin of the epoch
        self.losses.epoch_begins()
        if state.own.get("entered") == number and state.received is not None:
            state.scalars.restore_values(state.received)
            self.undo.recall_memories()
            self.updates.rates.begin_ramp(self.workers)  # the received rates are from before this generation
        else:
            state.drop_zeroed()
        state.carried.resume(takes=self.rank == 0)
        state.received = None
        state.own["entered"] = number
        self.undo.mark_state()

    def _expect_generation(self, position: Position, number: int, workers: int) -> None:
        """Prepare for the generation (group of workers) that is being formed and will begin at `position`."""
        self.shares.begins = self._trial_step(position.step)
        self.loading.start_prefetch(position, number, workers)

    def _trial_step(self, step: int) -> int | None:
        """Return the step in which the workers' shares are made unequal, or None if the script accumulates with
        `job.rows`.

        With `job.rows`, rows must stay on their workers until the accumulated gradients are used in an update.
        """
        return None if self.rows and self.state.accumulated else step

    def arrive(self, position: Position) -> None:
        """Continue from the boundary `position`, after the coordinator has decided which workers are members."""
        self.shares.begins = self._trial_step(max(self.membership.first_step, self.starts.step))
        self.position = self.anchor = position
        # Between two loops all workers draw the same numbers, so a layer initialised there is equal on all of them.
        seed_generators(self.shares.seed, position.step, 0 if self.membership.over else self.rank)
        self.updates.rates.begin_ramp(self.workers)
        self.state.carried.resume(takes=self.rank == 0)
        self.steps.reset_samples()
        self.memories.recall(self.state.own)
        self.undo.mark_state()
