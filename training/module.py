"""The Module face: MXNet's `Module.fit`, elastic at epoch ends, for scripts written for AWS Dynamic Training.

    class Data(BaseDataIterator):
        def get_data_iterator(self, kv):
            return train_iter, val_iter            # this worker's part: kv.rank of kv.num_workers

    kv = create("dist_sync")
    module = Module(symbol, data_iterator=Data())
    module.fit(train_iter, eval_data=val_iter, kvstore=kv, num_epoch=90)

The user's iterators cannot be repositioned: membership changes at epoch ends only, the audit does not cover such jobs,
and after a loss the epoch is repeated from the weights as they are. Each worker must have as many batches an epoch as
the others.

At an epoch's end BatchNorm's statistics are averaged first, then come the script's callbacks, then the validation: the
parameters that these see are the same on all workers. Of checkpoints (`do_checkpoint`, `module_checkpoint`,
`model.save_checkpoint`, `Module.save_checkpoint`) one worker writes the files. `save_params`, `nd.save` and what else a
script writes is written by every worker.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.protocol.messages import MODULE, Position
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.agreed.schedule import SampleSchedule
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.module_state import ModuleState
from dyntrain.training.worker.state.saved_model import WRITER, Callback, save_checkpoint, whole
from mxnet.kvstore import KVStoreBase
from mxnet.kvstore.base import create as create_of_mxnet  # mx.kvstore.create may be the one below
from mxnet.module.module import Module as ModuleOfMxnet  # likewise

ELASTIC = ("dist_sync", "dist_device_sync")
log = logging.getLogger(__name__)


class BaseDataIterator:
    """What `Module(data_iterator=...)` takes; any object with this method will do."""

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        """(training iterator, validation iterator or None) for worker `kv.rank` of `kv.num_workers`. Called again
        whenever the membership changed.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_data_iterator(kv)")


class ModuleStore(KVStoreBase):  # type: ignore[misc]  # mxnet has no types
    """The script's `kv`. Before `fit` it is worker 0 of 1, on every worker alike: the membership is not known until the
    model is.
    """

    type = ""  # the kind that the script asked for; MXNet looks for "dist" and "_sync" in it

    def __init__(self, membership: Membership, kind: str) -> None:
        self.membership, self.type = membership, kind

    @property
    def rank(self) -> int:
        return self.membership.kvstore.rank

    @property
    def num_workers(self) -> int:
        return self.membership.kvstore.num_workers

    def init(self, key: Any, value: Any) -> None:
        """Nothing to do: the workers' parameters are made equal when a generation forms."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """A Gluon Trainer begins with it, Module never asks for it."""
        raise NotImplementedError(
            "this kvstore is for Module.fit; a Gluon script trains elastically with job.trainer (training/GUIDE.md)"
        )

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        self.membership.kvstore.pushpull(key, value, out, priority)

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False  # above all not of the optimizer: its state on servers could reach no joiner

    def set_gradient_compression(self, compression_params: Any) -> None:
        raise NotImplementedError(
            "gradient compression leaves a residue on each worker that no joiner has: train without it (--gc-type none)"
        )


def create(name: str = "local") -> Any:
    """`mx.kvstore.create`, elastic for dist_sync and dist_device_sync."""
    return ModuleStore(Membership.join(name), name) if name in ELASTIC else create_of_mxnet(name)


class _MemberLost(Exception):
    """Another worker is gone, in the middle of the epoch or at its end. Never leaves `fit`."""


class Module(ModuleOfMxnet):  # type: ignore[misc]  # mxnet has no types
    """mx.mod.Module with `data_iterator=`. With another kvstore than dist_sync and dist_device_sync it is MXNet's
    own.
    """

    def __init__(self, *args: Any, data_iterator: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._data_iterator = data_iterator
        self._membership: Membership | None = None  # while an elastic fit runs
        self._position = Position(epoch=0, offset=0, step=0)
        self._schedule: SampleSchedule | None = None
        self._own_rescale = False
        self._batch = 0

    def fit(self, train_data: Any, eval_data: Any = None, *args: Any, **kwargs: Any) -> None:
        """MXNet's arguments, by place or by name. A worker that is asked to leave ends here with SystemExit(0)."""
        arguments = _named(args, kwargs)
        store = arguments.get("kvstore", "local")
        if isinstance(store, str) and store in ELASTIC:
            arguments["kvstore"] = store = create(store)
        if not isinstance(store, ModuleStore):
            super().fit(train_data, eval_data, **arguments)
            return
        if self._data_iterator is None:
            raise ValueError(
                "Module(data_iterator=...) is needed to train elastically: the training data is divided anew at "
                "each change"
            )
        if arguments.get("num_epoch") is None:
            raise ValueError("fit(num_epoch=...) is needed")
        self._fit_elastically(store, train_data, eval_data, arguments)

    def _fit_elastically(self, store: ModuleStore, train: Any, evaluation: Any, arguments: dict[str, Any]) -> None:
        begin = int(arguments.pop("begin_epoch", 0))
        epochs = int(arguments.pop("num_epoch")) - begin
        membership = store.membership
        metric = mx.metric.create(arguments.pop("eval_metric", "acc"))
        validation = mx.metric.create(arguments.pop("validation_metric", None) or copy.deepcopy(metric))
        callbacks = _listed(arguments.pop("epoch_end_callback", None))
        self._prepare(store, train, arguments)
        if epochs < 1:
            return
        generation = 0
        try:
            self._position = membership.enter(
                ModuleState(self), epochs=epochs, samples=1, global_batch=self._batch, seed=0, batching=MODULE
            )
            self._membership = membership
            while self._position.epoch < epochs:
                if membership.generation != generation:
                    generation = membership.generation
                    train, evaluation = self._divide(store, evaluation is not None)
                epoch = begin + self._position.epoch
                WRITER.chosen = store.rank == 0
                seed_generators(0, self._position.step, store.rank)
                try:
                    super().fit(
                        train,
                        evaluation,
                        metric,
                        begin_epoch=epoch,
                        num_epoch=epoch + 1,
                        validation_metric=validation,
                        epoch_end_callback=lambda epoch, *_: self._end_epoch(membership, callbacks, epoch),
                        **arguments,
                    )
                except _MemberLost:
                    self._position = membership.rejoin(self._position)
                    if begin + self._position.epoch > epoch:
                        WRITER.chosen = True  # of those that have trained the epoch none knows which others are left
                        self._call(callbacks, epoch)
                    else:
                        log.warning("epoch %d is begun again: a worker was lost", epoch)
                else:
                    _record(membership, "", metric)
                    if evaluation is not None:
                        _record(membership, "val_", validation)
                    end = self._position
                    self._position = membership.rejoin(end) if membership.broken else membership.boundary(end)
            membership.finished(self._position)
        finally:
            self._membership = None
            membership.close()

    def _end_epoch(self, membership: Membership, callbacks: list[Callback], epoch: int) -> None:
        """All batches are trained, the validation comes next."""
        self._position = Position(epoch=self._position.epoch + 1, offset=0, step=self._position.step)
        membership.average_statistics(self._position)
        if membership.broken:  # the statistics are not those of all; the next generation begins with one worker's
            raise _MemberLost
        self._call(callbacks, epoch)

    def _call(self, callbacks: list[Callback], epoch: int) -> None:
        arg_params, aux_params = self.get_params()
        for callback in callbacks:
            callback(epoch, self.symbol, arg_params, aux_params)

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        arg_params, aux_params = self.get_params()
        save_checkpoint(prefix, epoch, self.symbol, arg_params, aux_params, remove_amp_cast)
        if save_optimizer_states and WRITER.chosen:
            with whole(f"{prefix}-{epoch:04d}.states") as file:
                self.save_optimizer_states(file)

    def _prepare(self, store: ModuleStore, train: Any, arguments: dict[str, Any]) -> None:
        """What MXNet's fit does before its loop, once: the state must be there before a generation can form."""
        self.bind(
            train.provide_data,
            train.provide_label,
            for_training=True,
            force_rebind=arguments.pop("force_rebind", False),
        )
        self._batch = self._exec_group.batch_size
        self.init_params(
            initializer=arguments.pop("initializer", mx.init.Uniform(0.01)),
            arg_params=arguments.pop("arg_params", None),
            aux_params=arguments.pop("aux_params", None),
            allow_missing=arguments.pop("allow_missing", False),
            force_init=arguments.pop("force_init", False),
        )
        optimizer = arguments.pop("optimizer", "sgd")
        parameters = dict(arguments.pop("optimizer_params", (("learning_rate", 0.01),)))
        self._own_rescale = "rescale_grad" in parameters
        if parameters.get("lr_scheduler") is not None:
            parameters["lr_scheduler"] = SampleSchedule(parameters["lr_scheduler"], self._batch)
        self.init_optimizer(kvstore=store, optimizer=optimizer, optimizer_params=parameters)
        if not isinstance(optimizer, str) and optimizer.lr_scheduler is not None:
            optimizer.lr_scheduler = SampleSchedule(optimizer.lr_scheduler, self._batch)
        schedule = self._optimizer.lr_scheduler
        self._schedule = schedule if isinstance(schedule, SampleSchedule) else None

    def _divide(self, store: ModuleStore, validate: bool) -> tuple[Any, Any]:
        train, evaluation = self._data_iterator.get_data_iterator(store)
        log.info("worker %d of %d: the training data is divided anew", store.rank, store.num_workers)
        if not self._own_rescale:
            self._optimizer.rescale_grad = 1.0 / (self._batch * store.num_workers)
        return train, evaluation if validate else None

    # ---- MXNet's fit calls these for each epoch; they were done before the first

    def bind(self, *args: Any, **kwargs: Any) -> None:
        if self._membership is None:
            super().bind(*args, **kwargs)

    def init_params(self, *args: Any, **kwargs: Any) -> None:
        # set_params of the epoch's end comes through here too: with parameters of its own
        if self._membership is None or kwargs.get("arg_params") is not None:
            super().init_params(*args, **kwargs)

    def init_optimizer(self, *args: Any, **kwargs: Any) -> None:
        if self._membership is None:
            super().init_optimizer(*args, **kwargs)

    def update(self) -> None:
        if self._membership is None:
            super().update()
            return
        before = self._position
        after = Position(epoch=before.epoch, offset=before.offset + 1, step=before.step + 1)
        group = self._exec_group
        pairs = [
            (i, w, g)
            for i, (w, g) in enumerate(zip(group.param_arrays, group.grad_arrays, strict=True))
            if g[0] is not None
        ]
        applied = self._membership.step(
            after, lambda: self._push(pairs), [g[0] for _, _, g in pairs], lambda: self._apply(pairs)
        )
        if applied:
            self._position = after
            self._membership.count(self._batch)
            self._membership.stepped(after)
        if self._membership.broken:
            raise _MemberLost

    def _push(self, pairs: list[tuple[int, list[Any], list[Any]]]) -> None:
        for i, _, gradients in pairs:
            self._kvstore.pushpull(str(i), gradients, priority=-i)

    def _apply(self, pairs: list[tuple[int, list[Any], list[Any]]]) -> None:
        if self._schedule is not None:
            self._schedule.advance(self._batch * self._kvstore.num_workers)
        contexts = len(self._context)
        for context in range(contexts):
            updates = [(i * contexts + context, g[context], w[context]) for i, w, g in pairs]
            self._updater(*zip(*updates, strict=True))
        self._params_dirty = True


def _listed(callbacks: Any) -> list[Callback]:
    """What MXNet takes for callbacks: none, one or several."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


def _record(membership: Membership, prefix: str, metric: Any) -> None:
    """The epoch's value of each metric; workers count alike, as they have as many batches each."""
    for name, value in metric.get_global_name_value():
        if math.isfinite(value):
            membership.record(prefix + name, value, 1.0)


_FIT = (
    "eval_metric", "epoch_end_callback", "batch_end_callback", "kvstore", "optimizer", "optimizer_params",
    "eval_end_callback", "eval_batch_end_callback", "initializer", "arg_params", "aux_params", "allow_missing",
    "force_rebind", "force_init", "begin_epoch", "num_epoch", "validation_metric", "monitor", "sparse_row_id_fn",
)  # fmt: skip  # MXNet's order after train_data and eval_data


def _named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if len(args) > len(_FIT) or set(_FIT[: len(args)]) & set(kwargs):
        raise TypeError("fit() got an argument too many, or one of them twice")
    unknown = set(kwargs) - set(_FIT)
    if unknown:
        raise TypeError(f"fit() got an unexpected argument {sorted(unknown)[0]!r}")
    return {**dict(zip(_FIT, args, strict=False)), **kwargs}
