"""Trainer of an elastic job: a Gluon trainer that sums gradients over all workers, and whose updates can be undone."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, get_args

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.sampling.batching import WorkerRate
from dyntrain.training.sampling.whole import whole
from dyntrain.training.worker.loop.batch.thread_context import within
from dyntrain.training.worker.loop.instrument import Listener
from dyntrain.training.worker.refused import Refused
from mxnet import gluon

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

LossKind = Literal["sum", "mean", "own"]
COUNTS_CALLS_WARNING = (
    "%s gives another rate each time it is read. In a job, reading trainer.learning_rate does not advance it, only "
    "updates do: compute the rate from num_update"
)
LBSGD_ERROR = (
    "lbsgd has sums of gradients of its own, which cannot be restored if another trainer's step is void: with several "
    "trainers use another optimizer"
)
FOREIGN_TRAINER_ERROR = (
    "a gluon.Trainer of {name} was used within the job's batches: each worker would have its own weights. Make it with "
    "job.trainer(...) before the loop"
)


log = logging.getLogger(__name__)


class OnlyJobTrainers(Listener):
    def calls_trainer(self, trainer: Any) -> None:
        """Raise ValueError if the trainer was not made by `job.trainer`."""
        if not isinstance(trainer, ElasticTrainer):
            raise ValueError(FOREIGN_TRAINER_ERROR.format(name=trainer._params[0].name))


class ElasticTrainer(gluon.Trainer):  # type: ignore[misc]  # mxnet has no types
    """Gluon trainer made by `job.trainer`. A step in which a worker is lost (a void step) is undone, and its batch is
    repeated.
    """

    def __init__(
        self,
        loop: TrainingLoop,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        loss: LossKind | None = None,
        accumulate: int = 1,
        kvstore: Any = None,
        compression_params: Any = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        if loss is not None and loss not in get_args(LossKind):
            raise ValueError(
                f"loss={loss!r}: must be 'sum' or 'mean' (over the batch), or 'own' (normalised by the script)"
            )
        accumulate = whole("accumulate", accumulate)
        if update_on_kvstore:
            raise ValueError(
                "update_on_kvstore=True keeps the optimizer's state on servers, where no worker that joins can read "
                "it: leave it out, then every worker makes the same updates"
            )
        if compression_params:
            raise ValueError(
                "gradient compression leaves a residue on each worker that no joiner has: leave compression_params out"
            )
        if not (kvstore is None or (isinstance(kvstore, str) and "async" not in kvstore)):
            raise ValueError("the job has a store of its own: leave kvstore= out of job.trainer(...)")
        super().__init__(params, optimizer, optimizer_params, kvstore=None, update_on_kvstore=False)
        if isinstance(self._optimizer, mx.optimizer.SGLD):
            raise ValueError(
                "sgld draws its noise anew on each worker, so the workers' weights would differ: use another optimizer"
            )
        sparse_names = [
            param.name for param in self._params if param._grad_stype != "default" or param._stype != "default"
        ]
        if sparse_names:
            raise ValueError(
                f"{sparse_names[0]} has sparse gradients, which cannot be summed by this job: build its layer with "
                "sparse_grad=False"
            )
        for param in self._params if accumulate > 1 else ():
            if param.grad_req == "write":
                param.grad_req = "add"
        self.loss_kind, self.loss_is_declared, self.accumulate = loss or "sum", loss is not None, accumulate
        self._rate_was_read = False  # whether the script has read the rate
        self.worker_rate: WorkerRate | None = None  # with batching=PerWorker(...), the rate of its updates
        self.loop = loop  # replaced in the job's next loop over epochs if the script makes no new trainer

    @property
    def learning_rate(self) -> float:
        """The script's learning rate; with `PerWorker` batches, the learning rate for `job.size` workers.

        A single worker may read the learning rate, to print it. A call may change the scheduler, so this property calls
        a copy of the scheduler if it can be copied.
        """
        optimizer = self._optimizer
        if optimizer.lr_scheduler is None:
            return float(optimizer.lr)
        try:
            scheduler = copy.deepcopy(optimizer.lr_scheduler)
        except Exception:  # noqa: BLE001  # a scheduler with a lock cannot be copied: call the original
            scheduler = optimizer.lr_scheduler
        update_count = optimizer.num_update if self.worker_rate is None else self.worker_rate.updates
        learning_rate = scheduler(update_count)
        if (
            not self._rate_was_read
            and scheduler is not optimizer.lr_scheduler
            and _counts_calls(scheduler, update_count)
        ):
            log.warning(COUNTS_CALLS_WARNING, type(scheduler).__name__)
        self._rate_was_read = True
        return learning_rate  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> None:
        """Copy nothing: parameters of a copied net refer to their trainer, which must not exist twice."""

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients over all workers, divide the sums by the divisor that `batch_size` implies, and update the
        weights.

        `batch_size`: as in a script for one process, the batch size or the number of samples in the current batch.
        Raises ValueError if `batch_size` implies no divisor, or several.
        """
        self.loop.updates.divisor(self, batch_size)  # before anything is pushed
        self.allreduce_grads()
        self.update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        with within("in_job"):
            self.loop.updates.exchange(self)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        with within("in_job"):
            self.loop.updates.apply(
                self, batch_size, lambda by: super(ElasticTrainer, self).update(by, ignore_stale_grad)
            )

    def _init_kvstore(self) -> None:
        """Make Gluon's trainer use no kvstore, because the job has summed the gradients before Gluon's update."""
        self._kvstore, self._update_on_kvstore, self._distributed = None, False, False
        self._kv_initialized = True


def _counts_calls(scheduler: Any, update_count: int) -> bool:
    """Whether a call with an earlier call's `update_count` changes numbers in the scheduler, which must be a copy.

    Only the scheduler's attributes that are numbers are compared, so a list that grows with each call does not matter.
    """
    with suppress(Exception):  # a script's own scheduler may raise anything when called again
        numbers_before = _number_attributes(scheduler)
        scheduler(update_count)
        return _number_attributes(scheduler) != numbers_before
    return False


def _number_attributes(scheduler: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(scheduler).items() if isinstance(value, int | float)}


def refuse_lbsgd(trainers: Sequence[ElasticTrainer]) -> None:
    """Raise Refused if there are several trainers and one has the optimizer LBSGD."""
    if len(trainers) > 1 and any(isinstance(trainer._optimizer, mx.optimizer.LBSGD) for trainer in trainers):
        raise Refused(LBSGD_ERROR)
