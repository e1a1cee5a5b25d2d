"""MXNet's `Module` for scripts of AWS Dynamic Training: workers join and leave at the ends of epochs.

    class Data(BaseDataIterator):
        def get_data_iterator(self, kv):
            return train_iter, val_iter            # this worker's part: kv.rank of kv.num_workers

    kv = create("dist_sync")
    module = Module(symbol, data_iterator=Data())
    module.fit(train_iter, eval_data=val_iter, kvstore=kv, num_epoch=90)

The script's data iterators cannot continue from a position within an epoch. So the membership changes only at ends of
epochs, and after the loss of a worker the epoch is repeated with the current weights. Jobs that use this `Module`
cannot be audited. All workers must have the same number of batches per epoch. The script chooses each worker's batch
size, either constant, or as a batch over all workers divided by `kv.num_workers`. Gradients are divided by the number
of samples of a step over all workers, and learning-rate schedules count these samples.

At an epoch's end BatchNorm's statistics are averaged over the workers. After averaging, the script's callbacks and the
validation run with the same parameters on all workers. Only one worker writes the files of checkpoints
(`do_checkpoint`, `module_checkpoint`, `model.save_checkpoint`, `Module.save_checkpoint`). Files that a script writes by
`save_params`, `nd.save` or in other ways are written by every worker.
"""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # must precede mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.protocol.messages import MODULE, Position
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.agreed.gradient_scale import GradientScale
from dyntrain.training.worker.loop.agreed.reduction import REDUCE, sum_up
from dyntrain.training.worker.loop.module_store import ModuleStore, create
from dyntrain.training.worker.loop.schedule import SampleSchedule
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.script.fit import arguments_by_name
from dyntrain.training.worker.state.module_state import ModuleState
from dyntrain.training.worker.state.saved_model import WRITER, Callback, save_checkpoint, whole_file
from mxnet.module.module import Module as ModuleOfMxnet  # mx.module.Module may be replaced by the class below

__all__ = ["BaseDataIterator", "Module", "ModuleStore", "create"]
log = logging.getLogger(__name__)


class BaseDataIterator:
    """Interface of `Module`'s argument `data_iterator`; any object with the method `get_data_iterator` is accepted."""

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        """Return the training iterator and the validation iterator (or None) for worker `kv.rank` of `kv.num_workers`.

        This method is called again after each change of the membership.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_data_iterator(kv)")


class _MemberLost(Exception):
    """Another worker was lost, within an epoch or at an epoch's end. The method `fit` always catches this error."""


class Module(ModuleOfMxnet):  # type: ignore[misc]  # mxnet has no types
    """MXNet's `Module` with the argument `data_iterator`; without an elastic kvstore the class behaves as MXNet's."""

    def __init__(self, *args: Any, data_iterator: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._data_iterator = data_iterator
        self._membership: Membership | None = None  # set while an elastic fit runs
        self._position = Position(epoch=0, offset=0, step=0)
        self._scale: GradientScale | None = None
        self._batch = self._global_batch = 0  # samples in a step, of this worker and of all

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Load a module from a checkpoint, as MXNet does.

        `kwargs` are arguments of this class, such as `data_iterator`.
        """
        symbol, arg_params, aux_params = mx.model.load_checkpoint(prefix, epoch)
        module = Module(symbol=symbol, **kwargs)
        module._arg_params, module._aux_params, module.params_initialized = arg_params, aux_params, True
        if load_optimizer_states:
            module._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return module

    def fit(self, train_data: Any, eval_data: Any = None, *args: Any, **kwargs: Any) -> None:
        """Train with the arguments of MXNet's `fit`.

        A worker that is asked to leave the job exits in this method, by SystemExit(0).
        """
        arguments = arguments_by_name(args, kwargs)
        store = arguments.get("kvstore", "local")
        if isinstance(store, str) and "dist" in store.lower():
            arguments["kvstore"] = store = create(store)
        if not isinstance(store, ModuleStore):
            super().fit(train_data, eval_data, **arguments)
            return
        if self._data_iterator is None:
            raise ValueError(
                "Module(data_iterator=...) is needed to train elastically: the training data is divided again at "
                "each change"
            )
        if arguments.get("num_epoch") is None:
            raise ValueError("fit(num_epoch=...) is needed")
        self._fit_elastically(store, train_data, eval_data, arguments)

    def _fit_elastically(self, store: ModuleStore, train: Any, evaluation: Any, arguments: dict[str, Any]) -> None:
        first_epoch = int(arguments.pop("begin_epoch", 0))
        epoch_count = int(arguments.pop("num_epoch")) - first_epoch
        membership = store.membership
        metric = mx.metric.create(arguments.pop("eval_metric", "acc"))
        validation_metric = mx.metric.create(arguments.pop("validation_metric", None) or copy.deepcopy(metric))
        callbacks = _list_callbacks(arguments.pop("epoch_end_callback", None))
        self._init_training(store, train, arguments)
        if epoch_count < 1:
            return
        generation = 0
        try:
            self._position = membership.enter(
                ModuleState(self),
                epochs=epoch_count,
                samples=1,
                global_batch=self._batch,
                seed=0,
                batching=MODULE,
                keys=[REDUCE],
            )
            self._membership = membership
            while self._position.epoch < epoch_count:
                epoch = first_epoch + self._position.epoch
                WRITER.chosen = store.rank == 0
                seed_generators(0, self._position.step, store.rank)
                try:
                    if membership.generation != generation:
                        train, evaluation = self._divide_data(store, evaluation is not None)
                        generation = membership.generation
                    super().fit(
                        train,
                        evaluation,
                        metric,
                        begin_epoch=epoch,
                        num_epoch=epoch + 1,
                        validation_metric=validation_metric,
                        epoch_end_callback=lambda epoch, *_: self._end_epoch(membership, callbacks, epoch),
                        **arguments,
                    )
                except _MemberLost:
                    self._position = membership.rejoin(self._position)
                    if first_epoch + self._position.epoch > epoch:
                        WRITER.chosen = True  # no remaining worker knows which others completed the epoch
                        self._run_callbacks(callbacks, epoch)
                    else:
                        log.warning("epoch %d is begun again: a worker was lost", epoch)
                else:
                    _record_metrics(membership, "", metric, self._batch)
                    if evaluation is not None:
                        _record_metrics(membership, "val_", validation_metric, 1)
                    end_position = self._position
                    self._position = (
                        membership.rejoin(end_position) if membership.broken else membership.boundary(end_position)
                    )
            membership.finished(self._position)
        finally:
            self._membership = None
            membership.close()

    def _end_epoch(self, membership: Membership, callbacks: list[Callback], epoch: int) -> None:
        """Average BatchNorm's statistics over the workers and run the callbacks, after the epoch's last batch."""
        self._position = Position(epoch=self._position.epoch + 1, offset=0, step=self._position.step)
        membership.average_statistics(self._position)
        if membership.broken:  # the average is incomplete: the next group of workers begins with one worker's values
            raise _MemberLost
        self._run_callbacks(callbacks, epoch)

    def _run_callbacks(self, callbacks: list[Callback], epoch: int) -> None:
        arg_params, aux_params = self.get_params()
        for callback in callbacks:
            callback(epoch, self.symbol, arg_params, aux_params)

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        arg_params, aux_params = self.get_params()
        save_checkpoint(prefix, epoch, self.symbol, arg_params, aux_params, remove_amp_cast)
        if save_optimizer_states and WRITER.chosen:
            with whole_file(f"{prefix}-{epoch:04d}.states") as file:
                self.save_optimizer_states(file)

    def _init_training(self, store: ModuleStore, train: Any, arguments: dict[str, Any]) -> None:
        """Make parameters and optimizer, without which a worker cannot join, as MXNet's `fit` does before its loop."""
        self.bind(
            train.provide_data,
            train.provide_label,
            for_training=True,
            force_rebind=arguments.pop("force_rebind", False),
        )
        self._batch = self._global_batch = self._exec_group.batch_size
        force_init = arguments.pop("force_init", False)
        initial_params = {name: arguments.pop(name, None) for name in ("arg_params", "aux_params")}
        init_arguments = {"initializer": arguments.pop("initializer", mx.init.Uniform(0.01)), **initial_params}
        init_arguments["allow_missing"] = arguments.pop("allow_missing", False)
        if (
            force_init or any(initial_params.values()) or not self.params_initialized
        ):  # otherwise MXNet warns about loaded parameters
            self.init_params(**init_arguments, force_init=force_init)
        self.init_optimizer(
            kvstore=store,
            optimizer=arguments.pop("optimizer", "sgd"),
            optimizer_params=arguments.pop("optimizer_params", (("learning_rate", 0.01),)),
        )
        self._optimizer = optimizer = self._updater.optimizer  # loaded states may have replaced the optimizer
        self._scale = GradientScale(optimizer.rescale_grad, self._batch, self.symbol)
        if optimizer.lr_scheduler is not None and not isinstance(optimizer.lr_scheduler, SampleSchedule):
            optimizer.lr_scheduler = SampleSchedule(optimizer.lr_scheduler, self._batch, optimizer.num_update)

    def _divide_data(self, store: ModuleStore, validate: bool) -> tuple[Any, Any]:
        """Get this worker's part of the data, and set the factor by which gradients are scaled.

        Raises _MemberLost, and RefusedByAll for bad batches.
        """
        assert self._scale is not None
        train, evaluation = self._data_iterator.get_data_iterator(store)
        self.reshape(train.provide_data, train.provide_label)
        self._batch = self._exec_group.batch_size
        batch_size = float(self._batch)
        batch_sums = sum_up(
            store.membership, self._position, "the workers' batches", batch_size, batch_size * batch_size
        )
        if batch_sums is None:
            raise _MemberLost
        self._global_batch = round(batch_sums[0])
        log.info(
            "worker %d of %d: the training data is divided again, %d of %d samples in a batch",
            store.rank, store.num_workers, self._batch, self._global_batch,
        )  # fmt: skip
        self._optimizer.rescale_grad = self._scale.gradient_factor(*batch_sums, store.num_workers)
        return train, evaluation if validate else None

    # ---- MXNet's fit calls these methods in each epoch; in an elastic fit only `_prepare` has an effect

    def bind(self, *args: Any, **kwargs: Any) -> None:
        if self._membership is None:
            super().bind(*args, **kwargs)

    def init_params(self, *args: Any, **kwargs: Any) -> None:
        # set_params calls this method at an epoch's end, with its own parameters
        if self._membership is None or kwargs.get("arg_params") is not None:
            super().init_params(*args, **kwargs)

    def init_optimizer(self, *args: Any, **kwargs: Any) -> None:
        if self._membership is None:
            super().init_optimizer(*args, **kwargs)

    def update(self) -> None:
        if self._membership is None:
            super().update()
            return
        last_position = self._position
        reached_position = Position(
            epoch=last_position.epoch, offset=last_position.offset + 1, step=last_position.step + 1
        )
        executor_group = self._exec_group
        parameters = [
            (index, weights, gradients)
            for index, (weights, gradients) in enumerate(
                zip(executor_group.param_arrays, executor_group.grad_arrays, strict=True)
            )
            if gradients[0] is not None
        ]
        step_applied = self._membership.step(
            reached_position,
            lambda: self._push_gradients(parameters),
            [gradients[0] for _, _, gradients in parameters],
            lambda: self._apply_updates(parameters),
        )
        if step_applied:
            self._position = reached_position
            self._membership.count(self._batch)
            self._membership.stepped(reached_position)
        if self._membership.broken:
            raise _MemberLost

    def _push_gradients(self, parameters: list[tuple[int, list[Any], list[Any]]]) -> None:
        for index, _, gradients in parameters:
            self._kvstore.pushpull(str(index), gradients, priority=-index)

    def _apply_updates(self, parameters: list[tuple[int, list[Any], list[Any]]]) -> None:
        if isinstance(schedule := self._optimizer.lr_scheduler, SampleSchedule):
            schedule.advance(self._global_batch)
        context_count = len(self._context)
        for context_index in range(context_count):
            updates = [
                (index * context_count + context_index, gradients[context_index], weights[context_index])
                for index, weights, gradients in parameters
            ]
            self._updater(*zip(*updates, strict=True))
        self._params_dirty = True


def _list_callbacks(callbacks: Any) -> list[Callback]:
    """Return MXNet's callbacks (None, a function or several) as a list."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


def _record_metrics(membership: Membership, prefix: str, metric: Any, weight: int) -> None:
    """Record the epoch's value of each metric.

    All workers' values have equal weight, as all workers have the same number of batches.
    """
    for name, value in metric.get_global_name_value():
        if math.isfinite(value):
            membership.record(prefix + name, value * weight, float(weight))
