"""The public face: a plain Gluon loop that workers can join and leave.

    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {...})
    for epoch in job.epochs(90, samples=len(dataset), global_batch=256):
        for data, label in epoch.batches(dataset):
            with autograd.record():
                loss = loss_function(net(data), label)
            loss.backward()
            trainer.step(256)

Started under a supervisor, the process stands by until it is admitted, and the loop begins at the epoch where the job
is. Started alone, the same script trains on one worker. GUIDE.md tells how an existing script becomes an elastic one.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import dyntrain.training.numpy_aliases  # noqa: F401  # first: says what to install
from dyntrain.training.checks.findings import Findings, Mode
from dyntrain.training.engine import STORES, store_named
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, FixedGlobal, PerWorker
from dyntrain.training.sampling.whole import whole
from dyntrain.training.trial_files import VARIABLE
from dyntrain.training.worker.channel.objects import source_of
from dyntrain.training.worker.channel.records import open_channel
from dyntrain.training.worker.data.loader import Loader, as_gluons, make_loader, samples_of
from dyntrain.training.worker.data.randomness import begin_alike
from dyntrain.training.worker.data.shards import Shards
from dyntrain.training.worker.loop.batch.rows import Rows
from dyntrain.training.worker.loop.epoch import Epoch
from dyntrain.training.worker.loop.loop_config import ONE_AFTER_ANOTHER, Changes, LoopConfig, loop_config_of
from dyntrain.training.worker.loop.trainer import ElasticTrainer, LossKind
from dyntrain.training.worker.loop.training_loop import TrainingLoop
from dyntrain.training.worker.membership.client import CONTROL_FILE_VARIABLE
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.script.advice import advise
from dyntrain.training.worker.script.leaving import LEFT, close_soon
from dyntrain.training.worker.script.phases import ONE_LOOP, WITHIN
from dyntrain.training.worker.state.kept import Kept
from dyntrain.training.worker.state.memory import Memory

if {CONTROL_FILE_VARIABLE, VARIABLE} & set(
    os.environ
):  # this is a worker, or one process that is compared with workers
    begin_alike()
log = logging.getLogger(__name__)
T = TypeVar("T")
__all__ = ["ElasticJob", "Epoch", "FixedGlobal", "PerWorker"]


class ElasticJob:
    """Made by `join`."""

    def __init__(self, membership: Membership, size: int = 1) -> None:
        self.membership, self._size = membership, size
        self._loop = TrainingLoop(membership)
        self._looping = False  # inside a loop over epochs
        self._loop_over = False  # the one at hand has ended
        self._epoch: Epoch | None = None  # at hand

    @classmethod
    def join(
        cls,
        kvstore: str = "dist_sync",
        engine: str | None = None,
        size: int = 1,
        *,
        ignore: Collection[str] = (),
        checks: Mode | None = None,
    ) -> ElasticJob:
        """Connects to the supervisor's coordinator, or prepares to train alone when there is none. `engine`: pslite,
        with `kvstore` as MXNet's but for dist_async, or horovod; None: as the launch says, else pslite. `size`: see
        there. `ignore`: codes of rules that are not to be told of, as DT604; `checks`: "off" for none of them, "warn"
        (else), or "strict", with which warnings stop the job, too. A launch's own options go before both. Raises
        ValueError, and ImportError with advice where this Python has no such engine.
        """
        store = store_named(kvstore)
        membership = Membership.join(store or STORES[0], engine)  # first: it tells of what is raised here
        if store is None:
            raise ValueError(f"kvstore={kvstore!r}: there are {' and '.join(STORES)}, whose updates all workers make")
        membership.findings = Findings(ignore, checks)
        return cls(membership, whole("size", size))

    @property
    def size(self) -> int:
        """How many workers the script's numbers are for: what it multiplies its rate by, and divides its steps by. Not
        how many there are (`epoch.workers`, which changes): it is the same for the whole job, and for who joins.

        With `global_batch=64 * job.size` the job trains as so many workers with 64 samples each would, however many
        there are. With `batching=PerWorker(64)` the rate is multiplied by `epoch.workers / job.size`, and a scheduler
        counts updates of `job.size` workers: that is how a change of the number reaches it.
        """
        return self._size

    @property
    def local_rank(self) -> int:
        """Which of the node's workers this one is, from 0, for as long as its process lives: `mx.gpu(job.local_rank)`
        where each GPU has a worker of its own (`--workers-per-node`).
        """
        return self.membership.local_rank

    @property
    def local_size(self) -> int:
        """How many workers the node has."""
        return self.membership.local_size

    @property
    def rank(self) -> int:
        """This worker's number among all `epoch.workers`, as `epoch.rank`; changes with the membership. Those of a node
        follow each other.
        """
        return int(self._ranked("rank").kvstore.rank)

    @property
    def cross_rank(self) -> int:
        """The number of this worker's node, in Horovod's terms; changes with the membership."""
        return self._ranked("cross_rank").cross_rank

    def _ranked(self, name: str) -> Membership:
        if not self.membership.numbered:
            raise RuntimeError(
                f"job.{name} before the loop over job.epochs(): no worker has its number yet; job.local_rank it has"
            )
        return self.membership

    @property
    def position(self) -> Position:
        return self._loop.position

    @property
    def output(self) -> Path:
        """A folder for what the script keeps besides, the same on all workers: on the shared volume, below the job's;
        alone, `output` where the script was started. With the template's `OutputLocation` it is in S3 after each epoch.
        """
        folder = self.membership.output
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def writes(self) -> bool:
        """True on one worker: for best parameters, exports, plots, below `output`. Within an epoch it is worker 0; who
        that is changes with the membership, at boundaries. What it has written and closed before an epoch ends, all can
        read after that. After the loop it is one of those that came to the job's end.

            if job.writes:
                net.save_parameters(str(job.output / "best.params"))
        """
        return self.membership.writes

    def trainer(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        *,
        loss: LossKind | None = None,
        accumulate: int = 1,
        **gluons: Any,
    ) -> ElasticTrainer:
        """A `gluon.Trainer`, whose arguments it takes. Any number of them, before `epochs`.

        `loss` says what is differentiated: the "sum" over the batch, as `loss.backward()` of a Gluon loss is, with
        `step(batch_size)`; its "mean", with `step(1)`, or whatever the script told it; or one that the script
        normalises on its "own", where `step(n)` divides the sum over all workers by n. Left out it is a sum. What the
        first batch's `backward` is called on must fit: it raises ValueError with what to write.

        `accumulate`: an update is of the gradients of so many batches, added up (`grad_req='add'`); the script steps
        `if epoch.update_due:`, and its gradients are zero again after that.
        """
        loop = self._making("trainer")
        trainer = ElasticTrainer(loop, params, optimizer, optimizer_params, loss, accumulate, **gluons)
        loop.trainers.append(trainer)
        return trainer

    def channel(
        self,
        name: str,
        decode: Callable[[bytes], Any] | None = None,
        *,
        source: str | None = None,
        at_once: int = 16,
    ) -> Shards:
        """The RecordIO objects of a channel, for `loader`: read from S3 while it trains, nothing is copied first. Each
        object `X.rec` wants its index `X.idx` beside it. `decode` makes a sample of a record's bytes, as
        `mxnet.recordio.unpack_img` does; what it returns is collated as Gluon would.

        Where it lies: `source` (s3://BUCKET/PREFIX, or s3://BUCKET/KEY,manifest as SageMaker's), or else what
        `dyntrain launch --channel NAME=SOURCE` or the cluster's template say. Raises ChannelError with what to do.
        """
        shards = Shards(open_channel(source or source_of(name)), at_once)
        return shards if decode is None else shards.transform(decode)

    def loader(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = True,
        *,
        last_batch: str = "keep",
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        whole_batch: bool | None = None,
        num_workers: int = 0,
        prefetch: int | None = None,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        timeout: float = 120,
        sampler: Any = None,
        thread_pool: bool = False,
    ) -> Loader:
        """In the place of a `gluon.data.DataLoader`, whose arguments it takes, before `epochs`. Inside, one goes
        through it as before, or by `epoch.batches(loader)`. The batch size is that over all workers, the order the
        job's. A `Shards` of several files is read in sequence. With `last_batch="discard"` an epoch leaves out what
        fills no batch, other samples each time; with `PerWorker` every worker's batch is then a whole one.

        A `batch_sampler` says which samples make a batch, of whatever sizes (buckets by length, so many words); it runs
        alike on each worker, and each of its batches is divided. `random` and `np.random` are seeded before each
        epoch's pass. With `whole_batch` the `batchify_fn` has all samples of a batch before it is divided, on each
        worker, and what it draws is the same on all: for what mixes samples or pairs them, or pads them to the longest.
        Each worker then loads all. Where a `batchify_fn` pads, it must be said, True or False: the first batch raises
        ValueError.

        What a transform draws with `random`, `np.random` or MXNet follows from (seed, epoch, index): it is the same
        whoever loads the sample. With processes (`num_workers`), `prefetch` batches are loaded ahead while the net
        trains; they are dropped when the membership changes.
        """
        loop = self._making("loader")
        batch_size = None if batch_size is None else whole("batch_size", batch_size)
        if sampler is not None:
            raise ValueError(
                "sampler=: the job draws the order of each epoch. A sampler of your own says whole batches, as in "
                "batch_sampler=gluon.data.BatchSampler(sampler, batch_size)"
            )
        if thread_pool:
            raise ValueError("thread_pool=True: leave it out, num_workers= loads in processes")
        pinned = pin_device_id if pin_memory else None
        discards = as_gluons(samples_of(dataset), batch_size, shuffle, last_batch, batch_sampler)
        loader = make_loader(
            dataset,
            batchify_fn,
            num_workers,
            prefetch,
            timeout,
            pinned,
            whole_batch=whole_batch,
            batch_size=batch_size,
            discards=discards,
            sampler=batch_sampler,
        )
        loader.batches = lambda: self._batches(loader)
        loader.place = lambda: self._loop.place
        loop.loading.loaders.append(loader)
        return loader

    def _batches(self, loader: Loader) -> Iterator[Any]:
        epoch = self._epoch
        if epoch is None or (self.position.epoch != epoch.place and not self.membership.over):
            raise RuntimeError(
                "the loader gives each batch once, inside `for epoch in job.epochs(...)`: for a second pass, as an "
                f"evaluation is, take a gluon DataLoader over epoch.share(...); {ONE_AFTER_ANOTHER}"
            )
        return epoch.batches(loader)

    def memory(self, **values: Any) -> Memory:
        """Attributes that are equal on every worker and outlive every change and restart, before `epochs`:

            memory = job.memory(best=0.0, patience=5, history=[])

        Numbers, texts, arrays of at most 4,096 numbers, and lists, tuples or dictionaries of them, of which it keeps
        copies. `values` are what they begin with, where the job begins: a worker that joins finds in them what the
        others have. Set them on every worker, to the same: what differs is found at the next boundary, and told by its
        name.

        A step that is void, as a worker was lost in it, sets them back; so does each part of a batch but the last, with
        `local_batch_at_most`. An array of MXNet's is waited for in each step; a number is not.
        """
        loop, memory = self._making("memory"), Memory(**values)
        loop.memories.add(memory)
        return memory

    def keep(self, arrays: T) -> T:
        """Arrays of the script's own as part of the job's state, however large, before `epochs`; returns what it is
        given: a dictionary or list of MXNet's arrays, or a Block or ParameterDict that is in no trainer.

            average = job.keep({name: p.data().copy() for name, p in net.collect_params().items()})

        They are equal on every worker and outlive every change and restart; a step that is void sets them back. Other
        arrays may take their places, of the same shapes. A copy of them is made in each step, in their device's memory.
        """
        loop = self._making("keep")
        Kept(arrays)  # says what is wrong, here
        loop.keeps.append(arrays)
        return arrays

    def rows(self, arrays: Any, axis: int = 0) -> Rows:
        """Values of the rows of a batch that go on to the next one, before `epochs`: hidden states, with their rows
        along `axis`, as many as a batch over all workers has.

            hidden = job.rows(model.begin_state(batch_size=80), axis=1)
            for epoch in job.epochs(40):
                hidden.reset()
                for data, target in loader:
                    with autograd.record():
                        output, new = model(data, hidden.mine)
                        ...
                    hidden.mine = new

        `mine` is of this worker's rows; set it before `trainer.step`, which tells all workers. The loader has a
        `batch_sampler`, in whose batches row follows row.
        """
        loop = self._making("rows")
        made = Rows(len(loop.rows), arrays, axis)
        loop.rows.append(made)
        loop.keeps.append(made.whole)
        return made

    def _making(self, what: str) -> TrainingLoop:
        """The loop over epochs that the script prepares."""
        if self._looping:
            raise RuntimeError(
                f"job.{what}() within the loop over job.epochs(): a worker that joins would not have it. Call it above "
                "the loop, or above a second loop for a later part"
            )
        if self._loop_over and not self.membership.ended:
            self._loop, self._loop_over = TrainingLoop(self.membership, self._loop), False
        return self._loop

    def epochs(
        self,
        epochs: int,
        *,
        start: int = 0,
        samples: int | None = None,
        global_batch: int | None = None,
        batching: Batching | None = None,
        net: Any = None,
        steps: int | None = None,
        local_batch_at_most: int | None = None,
        seed: int = 0,
        average_statistics: bool = True,
        changes: Changes = "any",
        probe: bool = True,
        name: str | None = None,
    ) -> Iterator[Epoch]:
        """Yields the epochs that are left, from the first one this worker takes part in. `start`: the number of the
        loop's first, as in `range(start, epochs)`, where a script goes on from parameters of its own; orders and draws
        are those of that epoch.

        A second loop is the job's next phase: who joins in it gets nothing from the loops before and does what stands
        between them (layers that are unfrozen, a new trainer). Trainers, loaders and rows are those made since the
        last loop, of each kind; where none was, the last loop's. All else goes on: memory, what is kept, every net.
        Where there are several, each has a `name`: then the job ends with the script, not with a loop; so does `steps`
        or `job.stop()` end a loop.

        The parameters must be initialised and their shapes known. Each sample counts once an epoch whatever the
        membership does, but for what a loader discards. `global_batch` samples are in a step over all workers; or
        `batching` says otherwise: with `PerWorker` the batch, the rate and the schedule follow the number of workers,
        and an LR schedule counts updates of `job.size` workers. `samples` and `global_batch` that are left out are the
        loader's; beside a `batch_sampler`, `global_batch` is what `trainer.step` is told, where that is a constant.

        `steps`: the loop ends after so many, when that comes first. `local_batch_at_most`: a worker whose share of a
        step is larger gets it in parts, as batches of their own, and sums and updates with the last; so fewer workers
        need no more memory. It may differ from worker to worker. `net`: a Block or several, for what they hold beside
        the trainers' parameters.

        `changes="epoch"`: workers join and leave at ends of epochs alone, also where the cluster has boundaries within
        them, which then commit nothing either; for scripts that carry something from batch to batch. A loss makes a
        change wherever it happens.

        `probe`: before the first step each worker tries some samples of the first batch, and two parts of them, in
        processes of their own: ValueError where the parts' gradients are not those of the whole.

        The global random generators are seeded from `seed` at each boundary, and BatchNorm's running statistics are
        made those of all workers' samples (`average_statistics`). A worker that is asked to leave ends here with
        SystemExit(0).
        """
        if self._looping:
            raise RuntimeError(WITHIN)
        loop = self._making("epochs")
        if self.membership.ended:
            raise RuntimeError(ONE_LOOP if self._loop_over else LEFT)
        loop.inherit()
        advise(self.membership.findings, sys._getframe(1), named=name is not None)
        config = loop_config_of(
            loop.loading,
            epochs,
            start=start,
            base=self.membership.starts.epoch,
            name=name,
            another=name is not None,
            samples=samples,
            global_batch=global_batch,
            batching=batching,
            seed=seed,
            steps=steps,
            local_batch_at_most=local_batch_at_most,
            average_statistics=average_statistics,
            changes=changes,
            size=self._size,
            probe=probe,
        )
        if loop.trial is not None:
            config = loop.trial.shortened(config)
        if not loop.trainers:
            raise ValueError(
                "no trainer: make it with job.trainer(...) in place of gluon.Trainer(...), before job.epochs(). Arrays "
                "that are trained by hand become gluon.Parameters that it has"
            )
        self._looping = True
        return self._epochs(net, config)

    def stop(self) -> None:
        """End the loop well at the next boundary, on all workers: `epochs` then yields no more. One worker's word is
        enough: decide by what is the same on all, as `epoch.reduce` is, and no metric of this worker's batches. It is
        the end of the job where no other loop follows.
        """
        self.membership.stopping = True

    def close(self) -> None:
        """No other loop follows: for a process that goes on when the script has ended, as a notebook's does. Otherwise
        the process' end says so.
        """
        self.membership.script_ended()

    def _epochs(self, net: Any, config: LoopConfig) -> Iterator[Epoch]:
        loop, left = self._loop, False
        try:
            loop.begin(net, config)
            while loop.position.epoch < config.end and not self.membership.over:
                number = loop.position.epoch
                self._epoch = epoch = Epoch(loop, number, config.shift)
                yield epoch
                if self.membership.over:
                    break
                if loop.position.epoch == number:
                    raise RuntimeError(
                        f"the loop left epoch {epoch} at sample {loop.position.offset} of {config.samples}: go "
                        "through all its batches with `for`, without next() or a shorter zip(); job.epochs(..., "
                        "steps=N) ends a job early"
                    )
                loop.end_epoch()
            if loop.refusal is not None:  # seen since the last sum
                log.warning("%s", loop.refusal)
            if loop.trial is not None:
                loop.trial.ended(loop)
            self.membership.finished(loop.position)
            self._looping, self._loop_over, self._epoch = False, True, None
        except GeneratorExit:
            left = not self.membership.over
            raise
        except BaseException as error:
            self.membership.failed(error)
            raise
        finally:
            loop.end()
            if config.another and self._loop_over:
                atexit.register(loop.loading.close)
            else:
                self.membership.ended = True
                loop.loading.close()
                if left:
                    close_soon(self.membership)
                else:
                    self.membership.close()
