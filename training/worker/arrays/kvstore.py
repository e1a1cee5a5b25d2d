"""The kvstore that a Gluon Trainer uses for the whole job, through all generations (groups of workers)."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.engine import Engine
from mxnet.kvstore import KVStoreBase


class ElasticKVStore(KVStoreBase):  # type: ignore[misc]  # mxnet has no types
    """Sums gradients over the workers by the communication engine, or without an engine over this worker's devices.

    The optimizer never runs on ps-lite's servers. Momentum on a server could not be read back, so commits and joining
    workers could not get the momentum.
    """

    type = "elastic"  # MXNet's name for this type of kvstore
    rank = 0  # the coordinator's number for this worker
    num_workers = 1

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Copy `value` into `out` on this worker. Nothing is sent, as all workers already have the same state."""
        source_array = value[0] if isinstance(value, list) else value
        for target_array in out if isinstance(out, list) else [out]:
            if target_array is not source_array:
                source_array.copyto(target_array)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        if self._engine is None:
            device_arrays = value if isinstance(value, list) else [value]
            output_arrays = (out if isinstance(out, list) else [out]) if out is not None else device_arrays
            sum_array = device_arrays[
                0
            ].as_nd_ndarray()  # with npx.set_np() they are mx.np arrays, which operators do not mix
            if len(device_arrays) > 1:
                sum_array = mx.nd.add_n(
                    *[device_array.as_nd_ndarray().as_in_context(sum_array.context) for device_array in device_arrays]
                )
            for output_array in output_arrays:
                if len(device_arrays) > 1 or output_array is not device_arrays[0]:
                    sum_array.copyto(output_array.as_nd_ndarray())
            return
        self._engine.kvstore.pushpull(key, value, out=out, priority=priority)

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False

    def set_optimizer(self, optimizer: Any) -> None:
        raise NotImplementedError("the optimizer runs on the workers: pass update_on_kvstore=False, or omit it")
