"""The elastic training loop under a script's own: positions, shares, sums, updates, and what happens when one is void.

A *step* is one batch over all workers. Within it each trainer may sum and update once, at once (a GAN's second network
is trained against the first one's new weights); or not at all, when gradients add up over batches. Until its last
update is agreed on, a step can be voided: a worker was lost in it. Then everybody goes back to the *anchor*, the last
position at which nothing was under way, and the batches since then come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # before mxnet
import dyntrain.training.worker.loop.watched.carried  # looks at what goes on from batch to batch
import dyntrain.training.worker.loop.watched.counters  # looks at numbers of blocks
import dyntrain.training.worker.loop.watched.hybrids  # looks at which blocks are called
import dyntrain.training.worker.loop.watched.invoked  # noqa: F401  # looks at operators
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal
from dyntrain.training.sampling.sharding import Indices, is_boundary
from dyntrain.training.sampling.shares import Excerpt, Shares
from dyntrain.training.worker.data.batches import Dataset, fetch_samples
from dyntrain.training.worker.data.loader import Loader, samples_of
from dyntrain.training.worker.data.loading import Loading
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.agreed.reduction import REDUCE
from dyntrain.training.worker.loop.agreed.settled import settle
from dyntrain.training.worker.loop.agreed.totals import Totals
from dyntrain.training.worker.loop.batch.groups import group_of
from dyntrain.training.worker.loop.batch.hand import (
    ADDS_UP_BESIDE,
    HEAD,
    NOT_STEPPED,
    NOT_UPDATED,
    Hand,
    tally_key,
)
from dyntrain.training.worker.loop.batch.here import hold
from dyntrain.training.worker.loop.batch.parts import refuse_unfit
from dyntrain.training.worker.loop.batch.rows import ROWS_ADD_UP, Rows, refuse_rows
from dyntrain.training.worker.loop.course import Course
from dyntrain.training.worker.loop.first_batch import probed
from dyntrain.training.worker.loop.probing import Probing
from dyntrain.training.worker.loop.record.opinions import on_trial
from dyntrain.training.worker.loop.trainer import ElasticTrainer
from dyntrain.training.worker.loop.undone.undo import Undo
from dyntrain.training.worker.loop.updates import Updates
from dyntrain.training.worker.loop.watched.devices import refuse_means
from dyntrain.training.worker.loop.watched.epoch_draws import EpochDraws
from dyntrain.training.worker.loop.watched.factors import Factors
from dyntrain.training.worker.loop.watched.origins import begin, forget_all
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.kept import Held, Kept
from dyntrain.training.worker.state.memory import Memories
from dyntrain.training.worker.state.training_state import TrainingState


class TrainingLoop:
    """One loop over epochs. `before`: the one that the script has left behind, whose nets, memory and arrays are still
    the job's, as are its trainers, its rows, and its loaders, until the script makes others.
    """

    def __init__(self, membership: Membership, before: TrainingLoop | None = None) -> None:
        self.membership, self._before = membership, before
        if before is None:
            forget_all()
        self.trainers: list[ElasticTrainer] = []
        self.position = self.anchor = self._start = membership.starts
        self.hand: Hand | None = None  # the batch that the script has
        self._state: TrainingState | None = None
        self._earlier: list[Any] = []  # parameters of the loops before
        self._shares = Shares(0, 0, 0, FixedGlobal(1))
        self._course = Course()
        self.updates, self.totals = Updates(self, self._course), Totals(self)
        self._undo: Undo | None = None
        self._taken = 0  # samples since the anchor
        self.heads_known: set[ElasticTrainer] = set()  # whose losses are what they were told
        self.looks = 0  # at what is differentiated
        self.factors = Factors()
        self.keeps: list[Held] = before.keeps if before else []  # what the script keeps beside nets and trainers
        self.rows: list[Rows] = []
        self.loading = Loading()
        self.memories: Memories = before.memories if before else Memories()
        self.probing: Probing | None = None  # in a child that tries the first batch
        self.refusal: str | None = None  # of what this worker has seen: of all, at the next sum
        self._probed = self._began = False
        self._draws = EpochDraws()

    @property
    def state(self) -> TrainingState:
        if self._state is None:
            raise RuntimeError("the job has no state yet: this belongs inside `for epoch in job.epochs(...)`")
        return self._state

    @property
    def undo(self) -> Undo:
        assert self._undo is not None
        return self._undo

    @property
    def seed(self) -> int:
        return self._shares.seed

    @property
    def batch_number(self) -> int:
        """Of the batch at hand, in its epoch."""
        return self._shares.batch_number(self.position, self.workers)

    @property
    def place(self) -> tuple[int, bool]:
        """Of the batch at hand: its number in the epoch, and whether it is the last one."""
        return self.batch_number, self.after.epoch > self.position.epoch

    @property
    def group(self) -> int:
        """Batches of an update."""
        return self._shares.group

    @property
    def update_due(self) -> bool:
        """Whether the batch at hand is the last of those that an update is of."""
        number, last = self.place
        return last or (number + 1) % self.group == 0

    @property
    def divides_batches(self) -> bool:
        """Whether the script is given a large share in parts."""
        return self._course.local_batch_at_most is not None

    @property
    def follows(self) -> bool:
        """Whether members may change between two batches of which one leaves something to the other."""
        return self._course.changes == "any"

    # ---- the course of the loop

    def go_on(self) -> None:
        """The script has made what it wants for this loop; the rest is that of the loop before."""
        before, self._before = self._before, None
        if before is None:
            return
        self._earlier = before.state.parameters
        if not self.trainers:
            self.trainers = before.trainers
            for trainer in self.trainers:
                trainer.loop = self
        if not self.rows:
            self.rows = before.rows
        if self.loading.loaders:
            before.loading.close()
        else:
            self.loading = before.loading

    def begin(self, net: Any, course: Course) -> None:
        """Blocks until this worker is a member, or the loop is known to be over."""
        self._course = course
        self.membership.expects, self.membership.in_hand = self._expect, self._in_hand
        self._shares = course.shares(self.loading.sequence)
        self.loading.begin(self._shares, course.local_batch_at_most)
        self._shares.group = group_of(self.trainers, course.batching)
        self.updates = Updates(self, course)
        self._state = TrainingState(net, *self.trainers, kept=Kept(*self.keeps), beside=self._earlier)
        self._undo = Undo(self._state, self.memories)
        hold(None, self)
        self.memories.keep(self._state.own)
        self._refuse()
        refuse_rows(self.rows, course)
        flags = len(self._state.equal)
        tallies = [(tally_key(t), (HEAD + len(x._params) + flags,), "float64") for t, x in enumerate(self.trainers)]
        self._arrive(
            self.membership.enter(
                self._state,
                epochs=course.end,
                samples=course.samples,
                drawn_from=course.drawn_from,
                global_batch=course.batching.batch,
                seed=course.seed,
                batching=course.agreed(self.loading.sequence, self.group),
                another=course.another,
                keys=[*tallies, *(key for rows in self.rows for key in rows.summed_keys()), REDUCE],
            )
        )
        self._between_epochs()

    def _refuse(self) -> None:
        """Raises ValueError for what does not go with gradients that add up, as they are asked for now."""
        if self._course.local_batch_at_most is not None:
            refuse_unfit(self.trainers, self.state.accumulated)
        refuse_means(self.trainers, self.state.accumulated)
        if self.rows and self.group == 1 and self.state.accumulated:
            raise ValueError(ROWS_ADD_UP)

    def _in_hand(self) -> str | None:
        return None if self.hand is None else self.hand.beside(self.batch_number, self.position.epoch)

    @property
    def resumed(self) -> bool:
        """Whether the epoch at hand was begun before, by this process or another."""
        return bool(self.state.own.get("entered") == self.position.epoch)

    def end_epoch(self) -> None:
        """The boundary comes after the script's own end of the epoch, so that its validation counts for the epoch."""
        self.memories.keep(self.state.own)
        self.undo.put_back_written()
        self._arrive(self.membership.boundary(self.position))
        while self.membership.stopping and not self.membership.over:
            # Who was lost in the script's own lines led to a generation, and nobody heard that the job stops here.
            self._arrive(self.membership.boundary(self.position))
        self._between_epochs()

    def _between_epochs(self) -> None:
        """Until the script has begun the next one, every worker holds what was gathered before: what the script sets to
        zero there shows on all alike.
        """
        self.state.resume_gradients(takes=True)

    def batches(self, number: int, dataset: Dataset | Loader) -> Iterator[Any]:
        """Of a list, a Dataset, a Loader."""
        told = self._shares.drawn_from or self._shares.samples
        if (found := samples_of(dataset)) != told:
            raise ValueError(
                f"the dataset has {found} samples, job.epochs() was told samples={told}: each must count once an epoch"
            )
        for indices in self._indices(number, dataset):
            yield begin(self._load(dataset, indices))

    def indices(self, number: int) -> Iterator[Indices]:
        return self._indices(number, None)

    def _indices(self, number: int, dataset: Dataset | Loader | None) -> Iterator[Indices]:
        """`dataset` None: the script loads its batches itself."""
        self._enter(number)
        try:
            if self._to_probe:
                self._probed = True
                yield from probed(self, dataset)
            while self.position.epoch == number and not self.membership.over:
                if self._all_steps_made:  # a worker was lost in the last one, and a generation has formed
                    self.membership.stopping = True
                    self._at_boundary(epoch_ended=False)
                    continue
                self.hand = hand = self._take()
                hold(hand, self)
                yield hand.part
                while hand.goes_on and self._has_next(hand):
                    yield hand.part
                hold(None)
                self._put_down(hand)
        finally:
            hold(None)

    @property
    def _to_probe(self) -> bool:
        """Whether the loop begins here, with nothing that a part of its first batch would have to bring."""
        wanted = self.membership.probes and self._course.probe and not self._probed
        return wanted and self.position == self._start and not self.rows and not self.membership.over

    @property
    def first_batch(self) -> Indices:
        """Samples of all workers, at hand or the next."""
        return self._shares.divide(self.position, 0, 1)[0]

    @property
    def first_part(self) -> int:
        """Samples of it that this worker's script is given at once."""
        own = len(self._shares.divide(self.position, self.rank, self.workers)[1])
        return min(own, self._course.local_batch_at_most or own)

    def load_part(self, dataset: Dataset | Loader, batch: Indices, rows: Indices) -> Any:
        if isinstance(dataset, Loader):
            return self.loading.part(dataset, self._shares.shift + self.position.epoch, batch, rows)
        return fetch_samples(dataset, batch[rows])

    def take_part(self, probing: Probing, batch: Indices, rows: Indices) -> Hand:
        """In a child: `batch` is all that there is, and `rows` are this one's."""
        self.probing = probing
        self._shares = Excerpt(self._shares, batch, rows)
        self.hand = hand = Hand(batch[rows], len(batch), spectates=False)
        hold(hand, self)
        return hand

    def _has_next(self, hand: Hand) -> bool:
        """Another part of the batch. False: the step is void already."""
        if hand.summed is not None:
            raise RuntimeError(NOT_UPDATED)
        if not hand.updated:
            raise RuntimeError(NOT_STEPPED)
        hand.void = self.membership.broken
        if not hand.void:
            hand.updated.clear()
            hand.divides.clear()
            hand.unsure.clear()
            hand.at, hand.slices = hand.at + 1, None
            self.undo.recall()  # what the script counts, it counts once a step, however it is divided
        return not hand.void

    def _load(self, dataset: Dataset | Loader, indices: Indices) -> Any:
        if self.probing is not None:
            return self.probing.batch
        if not isinstance(dataset, Loader):
            return fetch_samples(dataset, indices)
        part = 0 if self.hand is None else self.hand.at
        return self.loading.take(dataset, self.position, self.rank, self.workers, part)

    def _enter(self, number: int) -> None:
        """The script's own beginning of the epoch (a new rate, layers that are unfrozen) has run. Where the epoch was
        begun before, it has run twice in the job's life, and what the first time led to counts.
        """
        state = self.state
        if self.membership.probes:  # whose generators are its own
            self._draws.begins()
        self._refuse()  # the script may have changed it where the epoch begins
        self.heads_known.clear()
        self.looks = 0
        if state.own.get("entered") == number and state.received is not None:
            state.set_values(state.received)
            self.undo.recall()
            self.updates.rates.head_for(self.workers)  # what was received is of before this generation
        else:
            state.drop_zeroed()
        state.resume_gradients(takes=self.rank == 0)
        state.received = None
        state.own["entered"] = number
        self.undo.mark()

    def _expect(self, position: Position, number: int, workers: int) -> None:
        """A generation that begins there is being formed."""
        self.updates.trained.formed()
        self._shares.begins = self._tries(position.step)
        self.loading.expect(position, number, workers)

    def _tries(self, step: int) -> int | None:
        """The rows of batches whose gradients add up stay where they are until the update, so these are not tried."""
        return None if self.rows and self.state.accumulated else step

    @property
    def on_trial(self) -> bool:
        """Whether the numbers in the workers' losses are compared."""
        return self.workers > 1 and (
            self._shares.tries(self.position) or on_trial(self.position.step, self._shares.begins)
        )

    def _arrive(self, position: Position) -> None:
        """At a boundary whose membership is settled."""
        self._shares.begins = self._tries(max(self.membership.first_step, self._start.step))
        self.position = self.anchor = position
        # Between two loops all workers draw the same: a layer that is initialised there has one value.
        seed_generators(self._shares.seed, position.step, 0 if self.membership.over else self.rank)
        self._draws.seeded()
        self.updates.rates.head_for(self.workers)
        self.state.resume_gradients(takes=self.rank == 0)
        self._taken = 0
        self.memories.recall(self.state.own)
        self.undo.mark()

    @property
    def rank(self) -> int:
        return self.membership.kvstore.rank

    @property
    def workers(self) -> int:
        return self.membership.kvstore.num_workers

    @property
    def _segment_steps(self) -> int | None:
        return self.membership.segment_steps if self._course.changes == "any" else None

    @property
    def step_samples(self) -> int:
        """In a full step of the present generation, over all workers."""
        return self._shares.step_samples(self.workers)

    # ---- one batch

    def _take(self) -> Hand:
        batch, rows, spectates = self._shares.divide(self.position, self.rank, self.workers)
        for each in self.rows:
            each.take(rows)
        indices = batch[rows]
        own = indices[:0] if spectates else indices
        self.membership.intend(self.position, own)
        self._taken += len(own)
        size = self._shares.size(self.position, self.workers)
        before = self.state.own.get("accumulated")
        hand = Hand(indices, size, spectates, before, self._course.local_batch_at_most)
        hand.follows_from, hand.is_first = self.anchor.step, not self._began
        self._began = True
        if spectates:
            hand.keep(self.state)
        for trainer in self.trainers:
            hand.forget(trainer)
            hand.weigh(trainer, self.state)
        self.undo.forwards.take(self.state)
        return hand

    def _is_void(self, hand: Hand) -> bool:
        """Of a step that was summed, and that the script has not updated by."""
        reaches = len(self.trainers) == 1
        return hand.void or (self.membership.broken and not self.membership.apply(self.after, lambda: None, reaches))

    @property
    def after(self) -> Position:
        return self._shares.after(self.position, self.workers)

    def reached(self, after: Position) -> None:
        """Nothing is under way any more."""
        self.anchor = after
        self.state.drop_carried()
        self.state.own.pop("accumulated", None)
        self.undo.stands()

    def _put_down(self, hand: Hand) -> None:
        self.hand = None
        if hand.summed is not None and not self._is_void(hand):
            raise RuntimeError(NOT_UPDATED)
        hand.give_back(self.state)
        after = self.after
        if hand.summed is not None:
            hand.void = True  # what it has summed may be no number: a script that looks need not update by it
        elif not hand.updated:
            if not self.state.accumulated or (self.group > 1 and self.update_due):
                raise RuntimeError(NOT_STEPPED)
            self.state.own["accumulated"] = hand.record
        elif any(self._adds_up(trainer) for trainer in self.trainers if trainer not in hand.updated):
            raise RuntimeError(ADDS_UP_BESIDE)
        elif not hand.void and len(self.trainers) > 1:
            if self.membership.reach(after):
                self.reached(after)
            else:
                hand.void = True
        before, due = self.position, self.update_due
        undone = hand.void or (self.membership.broken and self.anchor != after)
        for rows in self.rows:
            rows.put_down(undone)
        if undone:
            self._go_back()
        else:
            self.position = after
            self.membership.stepped(after)
            if self.anchor == after:
                self.undo.stands()
                self._taken = 0
                self.state.resume_gradients(takes=False)
                self.undo.mark()
        if undone or hand.updated:
            self.undo.forwards.put_down(undone)
        self.factors.put_down(forgets=undone or bool(hand.updated))
        epoch_ended = self.position.epoch > before.epoch
        if self.membership.broken and not epoch_ended:
            self._rejoin()
        elif not due:
            pass  # no boundary between the batches of one update
        elif self._all_steps_made:
            self.membership.stopping = True
            self._at_boundary(epoch_ended)
        elif is_boundary(self.position, self.membership.first_step, self._segment_steps, self.group):
            self._at_boundary(epoch_ended)

    @property
    def _all_steps_made(self) -> bool:
        return self._course.steps is not None and self.position.step - self._start.step >= self._course.steps

    @staticmethod
    def _adds_up(trainer: ElasticTrainer) -> bool:
        return any(p.grad_req == "add" and any(d._fresh_grad for d in p.list_data()) for p in trainer._params)

    def _go_back(self) -> None:
        self.undo.go_back()
        self.membership.take_back(self._taken)
        self.position = self.anchor

    def _rejoin(self) -> None:
        self._arrive(self.membership.rejoin(self.position))

    def _at_boundary(self, epoch_ended: bool) -> None:
        """At the end of an epoch the statistics are averaged now, for the script's validation; the rest comes after
        that, also where a worker was lost: what the script sets there, as a rate, belongs to what joiners receive.
        """
        if self.anchor != self.position:
            self._settle()
        if not self.membership.broken and self._course.average_statistics:
            self.membership.average_statistics(self.position)
        if self.anchor != self.position:
            self._go_back()
            self._rejoin()
        elif epoch_ended:
            pass
        elif self.membership.broken:
            self._rejoin()
        else:
            self._arrive(self.membership.boundary(self.position))

    def _settle(self) -> None:
        """Gradients that add up over the boundary outlive every worker."""

        def taken() -> None:
            self.anchor = self.position
            self.undo.mark()

        settle(self.membership, self.state, self.trainers, self.position, taken)
        self._taken = 0 if self.anchor == self.position else self._taken
        self.state.resume_gradients(takes=self.rank == 0)
