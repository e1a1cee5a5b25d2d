"""The interface for training scripts: a Gluon training loop that workers can join and leave.

    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd", {...})
    for epoch in job.epochs(90, samples=len(dataset), global_batch=256):
        for data, label in epoch.batches(dataset):
            with autograd.record():
                loss = loss_function(net(data), label)
            loss.backward()
            trainer.step(256)

In a worker process of a cluster, the loop begins at the job's current epoch, once the worker is admitted to the job.
Without a cluster, the same script trains as a single worker. GUIDE.md says how to make an existing script elastic.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import dyntrain.training.numpy_aliases  # noqa: F401  # first: its error says what to install
from dyntrain.training.checks.findings import Findings, Mode
from dyntrain.training.engine import STORES, kvstore_name
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, FixedGlobal, PerWorker
from dyntrain.training.sampling.whole import whole
from dyntrain.training.trial_files import VARIABLE
from dyntrain.training.worker.channel.objects import source_of
from dyntrain.training.worker.channel.records import open_channel
from dyntrain.training.worker.data.loader import Loader, discards_last, make_loader, samples_of
from dyntrain.training.worker.data.randomness import seed_alike
from dyntrain.training.worker.data.shards import Shards
from dyntrain.training.worker.loop.batch.rows import Rows
from dyntrain.training.worker.loop.epoch import Epoch
from dyntrain.training.worker.loop.loop_config import SEVERAL_DATASETS_REMEDY, Changes, LoopConfig, loop_config_of
from dyntrain.training.worker.loop.trainer import ElasticTrainer, LossKind
from dyntrain.training.worker.loop.training_loop import TrainingLoop
from dyntrain.training.worker.membership.client import CONTROL_FILE_VARIABLE
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.script.advice import advise
from dyntrain.training.worker.script.leaving import LEFT_EARLY_ERROR, close_later
from dyntrain.training.worker.script.phases import ONE_LOOP_ERROR, WITHIN_LOOP_ERROR
from dyntrain.training.worker.state.kept import KeptArrays
from dyntrain.training.worker.state.memory import Memory

if {CONTROL_FILE_VARIABLE, VARIABLE} & set(
    os.environ
):  # in a worker, and in the single process that a trial compares with workers
    seed_alike()
log = logging.getLogger(__name__)
T = TypeVar("T")
__all__ = ["ElasticJob", "Epoch", "FixedGlobal", "PerWorker"]


class ElasticJob:
    """The job, as its training script uses it after `ElasticJob.join()`."""

    def __init__(self, membership: Membership, size: int = 1) -> None:
        self.membership, self._size = membership, size
        self._loop = TrainingLoop(membership)
        self._looping = False  # inside a loop over epochs
        self._loop_over = False  # the current loop has ended
        self._epoch: Epoch | None = None  # the current epoch

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
        """Connect to the job's coordinator, or without a coordinator prepare to train alone.

        `engine` is "pslite", for which `kvstore` may be any kvstore of MXNet except dist_async, or "horovod". Without
        `engine`, the launch chooses the engine, by default pslite. `size` is explained at the property `size`. `ignore`
        contains codes of rules that are not checked, such as DT604. `checks` is "off" to check no rules, "warn" (the
        default), or "strict", with which warnings also stop the job. The launch's options override `ignore` and
        `checks`. Raises ValueError, and ImportError with advice if this Python lacks the engine.
        """
        store = kvstore_name(kvstore)
        membership = Membership.join(store or STORES[0], engine)  # first: it reports the errors raised below
        if store is None:
            raise ValueError(f"kvstore={kvstore!r} is not elastic: the elastic kvstores are {' and '.join(STORES)}")
        membership.findings = Findings(ignore, checks)
        return cls(membership, whole("size", size))

    @property
    def size(self) -> int:
        """The number of workers for which the script's settings are meant.

        The script multiplies its learning rate by `size`, and divides its number of steps by `size`. The value is
        constant for the whole job, also for workers that join later. The current number of workers is `epoch.workers`.

        With `global_batch=64 * job.size` the job trains as `job.size` workers with 64 samples each would, for any
        current number of workers. With `batching=PerWorker(64)` the learning rate is multiplied by `epoch.workers /
        job.size`. With `PerWorker`, a learning-rate scheduler counts updates as if there were `job.size` workers.
        """
        return self._size

    @property
    def local_rank(self) -> int:
        """Number of this worker among its node's workers, from 0; constant for the life of the worker's process.

        Use `mx.gpu(job.local_rank)` where each GPU has its own worker (`--workers-per-node`).
        """
        return self.membership.local_rank

    @property
    def local_size(self) -> int:
        """Number of workers on this worker's node."""
        return self.membership.local_size

    @property
    def rank(self) -> int:
        """Number of this worker among all workers, from 0, like `epoch.rank`; the number changes with the membership.

        Workers of a node have consecutive numbers.
        """
        return int(self._membership_with_rank("rank").kvstore.rank)

    @property
    def cross_rank(self) -> int:
        """Horovod's cross rank: the number of this worker's node, which changes with the membership."""
        return self._membership_with_rank("cross_rank").cross_rank

    def _membership_with_rank(self, name: str) -> Membership:
        if not self.membership.numbered:
            raise RuntimeError(
                f"job.{name} is unknown before the loop over job.epochs(): no worker has its number yet; use "
                "job.local_rank"
            )
        return self.membership

    @property
    def position(self) -> Position:
        return self._loop.position

    @property
    def output(self) -> Path:
        """A folder for the script's own files, in the job's folder on the shared volume, which is equal on all workers.

        Without a cluster, `output` is the folder `output` in the current directory. If the cluster's template sets
        `OutputLocation`, the output folder is copied to S3 after each epoch.
        """
        folder = self.membership.output
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def writes(self) -> bool:
        """True on the one worker that writes files for all workers into `output`: best parameters, exports, plots.

        Within an epoch the worker with rank 0 writes; a change of the membership may give rank 0 to another worker.
        After an epoch all workers can read the files that the writing worker closed within the epoch. After the loop
        over epochs, a worker that has applied the job's last step writes.

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
        """Make an elastic trainer, with the same arguments as `gluon.Trainer`.

        Call `trainer` before `epochs`, once for each trainer. `loss` says which loss the script differentiates. The
        default "sum" is the sum over the batch, as with `loss.backward()` in a Gluon loop, and the script calls
        `step(batch_size)`. With "mean", the mean over the batch, the script calls `step(1)`, or `step` with the number
        that the script passed before it was elastic. With "own", the script normalizes its loss itself, and `step(n)`
        divides the sum of the gradients over all workers by n. If the first batch's `backward` contradicts `loss`, a
        ValueError is raised, whose message says what to write.

        `accumulate` is the number of batches whose gradients are added up for one update (`grad_req='add'`). With
        `accumulate`, the script calls `step` only `if epoch.update_due:`, after which the gradients are zero again.
        """
        loop = self._loop_to_prepare("trainer")
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
        """Return a channel's RecordIO objects, which `loader` reads from S3 during training, without a copy on disk.

        Each S3 object `X.rec` needs its index, the object `X.idx`, under the same prefix. The function `decode` makes a
        sample from a record's bytes, as `mxnet.recordio.unpack_img` does. Samples are put together to batches as by
        Gluon's DataLoader.

        `source` is s3://BUCKET/PREFIX, or s3://BUCKET/KEY,manifest as for SageMaker. By default the source is taken
        from `dyntrain launch --channel NAME=SOURCE` or from the cluster's template. Raises ChannelError, whose message
        says what to do.
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
        """Make an elastic loader, with the same arguments as `gluon.data.DataLoader`.

        Call `loader` before `epochs`. In the loop over epochs, iterate over the loader like over a DataLoader, or over
        `epoch.batches(loader)`. `batch_size` is the number of samples of a batch over all workers; the job draws the
        order of the samples. If the dataset is a `Shards` object of several files, the files are read sequentially.
        With `last_batch="discard"` each epoch leaves out the samples that do not fill a whole batch; the left-out
        samples differ between epochs. With `PerWorker` and `last_batch="discard"`, each worker's batch is complete.

        A `batch_sampler` chooses the samples of each batch, which may have any size, for example in buckets by length.
        The sampler runs identically on each worker, and each of its batches is divided among the workers. The
        generators `random` and `np.random` are seeded before each epoch's pass over the data. With `whole_batch`, each
        worker loads all samples of a batch. Functions that mix or pair samples, or pad samples to the longest, need
        `whole_batch`. With `whole_batch`, the `batchify_fn` gets all samples before the batch is divided, and makes the
        same random draws on all workers. If a `batchify_fn` pads samples, `whole_batch` must be set to True or False:
        otherwise the first batch raises ValueError.

        A transform's random draws with `random`, `np.random` or MXNet depend only on (seed, epoch, sample index), so
        the draws for a sample are the same on any worker. With loading processes (`num_workers`), `prefetch` batches
        are loaded ahead while the net trains. Batches that were loaded ahead are dropped when the membership changes.
        """
        loop = self._loop_to_prepare("loader")
        batch_size = None if batch_size is None else whole("batch_size", batch_size)
        if sampler is not None:
            raise ValueError(
                "sampler= is not supported: the job draws the order of each epoch. Your own sampler must give whole "
                "batches: batch_sampler=gluon.data.BatchSampler(sampler, batch_size)"
            )
        if thread_pool:
            raise ValueError("thread_pool=True is not supported: leave it out, as num_workers= loads in processes")
        pinned_device = pin_device_id if pin_memory else None
        discards_last_batch = discards_last(samples_of(dataset), batch_size, shuffle, last_batch, batch_sampler)
        loader = make_loader(
            dataset,
            batchify_fn,
            num_workers,
            prefetch,
            timeout,
            pinned_device,
            whole_batch=whole_batch,
            batch_size=batch_size,
            discards=discards_last_batch,
            sampler=batch_sampler,
        )
        loader.batches = lambda: self._iterate_batches(loader)
        loader.place_in_epoch = lambda: self._loop.place_in_epoch
        loop.loading.loaders.append(loader)
        return loader

    def _iterate_batches(self, loader: Loader) -> Iterator[Any]:
        epoch = self._epoch
        if epoch is None or (self.position.epoch != epoch.job_epoch and not self.membership.over):
            raise RuntimeError(
                "the loader gives each batch once, inside `for epoch in job.epochs(...)`: for a second pass, as an "
                f"evaluation is, take a gluon DataLoader over epoch.share(...); {SEVERAL_DATASETS_REMEDY}"
            )
        return epoch.batches(loader)

    def memory(self, **values: Any) -> Memory:
        """Return an object with the given attributes, for the script's own values; call `memory` before `epochs`.

        The attributes are equal on every worker, and survive every change of the membership and every restart.

            memory = job.memory(best=0.0, patience=5, history=[])

        Values are numbers, texts, arrays of at most 4,096 numbers, and lists, tuples or dictionaries of them, which are
        copied. The given `values` are used at the job's beginning: a worker that joins later gets the other workers'
        current values instead. The script must set each value alike on every worker: differences are detected at the
        next boundary, and reported with the attribute's name.

        If a step becomes void because a worker was lost, the values from before the step are restored. With
        `local_batch_at_most`, a batch has several parts; after each part except the last, the values from before the
        part are restored. If values are MXNet arrays, each step waits until the arrays are computed; for numbers no
        wait is necessary.
        """
        loop, memory = self._loop_to_prepare("memory"), Memory(**values)
        loop.memories.add(memory)
        return memory

    def keep(self, arrays: T) -> T:
        """Add the script's own arrays, of any size, to the job's state, and return `arrays`; call this before `epochs`.

        `arrays` is a dictionary or list of MXNet's arrays, or a Block or ParameterDict that is in no trainer.

            average = job.keep({name: p.data().copy() for name, p in net.collect_params().items()})

        The arrays are equal on every worker, and survive every change and restart. If a step becomes void, the arrays
        from before the step are restored. The script may replace the kept arrays by other arrays of the same shapes. At
        each step the arrays are copied within their device's memory.
        """
        loop = self._loop_to_prepare("keep")
        KeptArrays(arrays)  # raises here if the arrays are unusable
        loop.keeps.append(arrays)
        return arrays

    def rows(self, arrays: Any, axis: int = 0) -> Rows:
        """Return an object for values of a batch's rows, such as hidden states, that the next batch needs.

        Call `rows` before `epochs`. The rows of `arrays` are along `axis`; the number of rows is that of a batch over
        all workers.

            hidden = job.rows(model.begin_state(batch_size=80), axis=1)
            for epoch in job.epochs(40):
                hidden.reset()
                for data, target in loader:
                    with autograd.record():
                        output, new = model(data, hidden.mine)
                        ...
                    hidden.mine = new

        The attribute `mine` contains this worker's rows; set `mine` before `trainer.step`, which sends the rows to all
        workers. The loader needs a `batch_sampler` that makes each row of a batch continue the same row of the previous
        batch.
        """
        loop = self._loop_to_prepare("rows")
        rows = Rows(len(loop.rows), arrays, axis)
        loop.rows.append(rows)
        loop.keeps.append(rows.whole)
        return rows

    def _loop_to_prepare(self, method: str) -> TrainingLoop:
        """Return the loop over epochs for which the script now makes trainers and loaders."""
        if self._looping:
            raise RuntimeError(
                f"job.{method}() within the loop over job.epochs() does not reach workers that join: call it above the "
                "loop, or above a further job.epochs() for a later phase"
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
        """Yield the remaining epochs, from the first epoch in which this worker takes part.

        `start` is the number of the loop's first epoch, as in `range(start, epochs)`, for a script that continues from
        its own saved parameters. Sample order and random draws are those of the epoch `start`.

        A script may have several loops over epochs, one for each phase of the job. A worker that joins in a later loop
        skips the epochs of earlier loops and executes the lines between the loops (unfreeze layers, make a new
        trainer). A loop uses the trainers, loaders and rows that the script made since the previous loop. If the script
        made no new trainers, for example, the loop uses the previous loop's trainers. The next loop also keeps the
        values in `job.memory`, the arrays of `job.keep()` and every net. If a script has several loops, each loop needs
        a `name`. With several loops, the job ends when the script ends, and `steps` and `job.stop()` end only one loop.

        The net's parameters must be initialized, with known shapes. Each sample is trained on exactly once in an epoch,
        however the membership changes, except samples that a loader discards. A step has `global_batch` samples over
        all workers, unless `batching` is `PerWorker`. With `PerWorker`, batch size and learning rate follow the number
        of workers, and a learning-rate schedule counts updates as if there were `job.size` workers. `samples` and
        `global_batch` default to the loader's numbers. With a `batch_sampler`, `global_batch` should be the argument of
        `trainer.step`, if this argument is constant.

        `steps` is the maximum number of steps of the loop. `local_batch_at_most` is the maximum number of samples of a
        worker's batch. If a worker's share of a step exceeds `local_batch_at_most`, the share is divided into parts,
        which the loop yields as separate batches. Only the last part's `trainer.step` sums the gradients over all
        workers and updates the parameters. With `local_batch_at_most`, each worker's memory suffices even if few
        workers are left. `local_batch_at_most` may differ between workers. `net` is one Block or several Blocks; their
        parameters that are in no trainer become a part of the job's state.

        With `changes="epoch"`, workers join and leave only at ends of epochs, which suits scripts that carry values
        from batch to batch. With `changes="epoch"`, commits are written only at ends of epochs. The loss of a worker
        still changes the membership at any step.

        With `probe`, each worker tries some samples of the first batch before the first step, once as a whole and once
        in two parts, in separate processes. The probe raises ValueError if the gradients of the parts contradict the
        gradients of the whole.

        The global random generators are seeded from `seed` at each boundary. With `average_statistics`, BatchNorm's
        running statistics are averaged over all workers' samples. In a worker that is asked to leave, the iterator
        raises SystemExit(0).
        """
        if self._looping:
            raise RuntimeError(WITHIN_LOOP_ERROR)
        loop = self._loop_to_prepare("epochs")
        if self.membership.ended:
            raise RuntimeError(ONE_LOOP_ERROR if self._loop_over else LEFT_EARLY_ERROR)
        loop.inherit_from_previous()
        advise(self.membership.findings, sys._getframe(1), has_name=name is not None)
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
                "no trainer: make it with job.trainer(...) in place of gluon.Trainer(...), before job.epochs(). Turn "
                "arrays that you update yourself into its gluon.Parameters"
            )
        self._looping = True
        return self._run_epochs(net, config)

    def stop(self) -> None:
        """End the loop over epochs successfully at the next boundary, on all workers.

        After the boundary at which the loop ends, `epochs` yields no further epoch. It is enough if one worker calls
        `stop`. The script should decide by a value that is equal on all workers, such as a result of `epoch.reduce`,
        and not by a metric of this worker's batches. The job ends if no other loop over epochs follows.
        """
        self.membership.stopping = True

    def close(self) -> None:
        """Declare that no further loop over epochs follows.

        Only a process that continues after the script, such as a notebook's, needs to call `close`. In other processes,
        the end of the process implies that no further loop follows.
        """
        self.membership.script_ended()

    def _run_epochs(self, net: Any, config: LoopConfig) -> Iterator[Epoch]:
        loop, loop_abandoned = self._loop, False
        try:
            loop.begin(net, config)
            while loop.position.epoch < config.end_epoch and not self.membership.over:
                epoch_number = loop.position.epoch
                self._epoch = epoch = Epoch(loop, epoch_number, config.epoch_shift)
                yield epoch
                if self.membership.over:
                    break
                if loop.position.epoch == epoch_number:
                    raise RuntimeError(
                        f"the loop left epoch {epoch} at sample {loop.position.offset} of {config.samples}: iterate "
                        "over all batches with `for`, without next() or a shorter zip(); to stop early use "
                        "job.epochs(..., steps=N)"
                    )
                loop.end_epoch()
            if loop.refusal is not None:  # found since the last summation
                log.warning("%s", loop.refusal)
            if loop.trial is not None:
                loop.trial.end_loop(loop)
            self.membership.finished(loop.position)
            self._looping, self._loop_over, self._epoch = False, True, None
        except GeneratorExit:
            loop_abandoned = not self.membership.over
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
                if loop_abandoned:
                    close_later(self.membership)
                else:
                    self.membership.close()
