"""A script of GPUs, tried on the CPU: nothing of a GPU's is there after a fork. Never run on a GPU; with CPUs in their
places it is.
"""

from __future__ import annotations

import gc
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import gluon

CPU = mx.Context.devstr2type["cpu"]
Copies = list[tuple[Any, Any]]  # parameters, and copies in the host's memory


def is_gpu(context: Any) -> bool:
    return bool(context.device_typeid != CPU)


def copies_on_cpu() -> Copies:
    """Of all parameters on GPUs, in the parent."""
    params = [each for each in gc.get_objects() if issubclass(type(each), gluon.Parameter)]
    on_gpus = (p for p in params if p._data is not None and any(map(is_gpu, p.list_ctx())))
    return [(p, p.list_data()[0].copyto(mx.cpu())) for p in on_gpus]


def move_to_cpu(copies: Copies) -> None:
    """In the child: GPU k is CPU k from now on, whose parameters are the copies. An array of the script's own on a GPU
    is not there, and ends the child where it is used.
    """
    if not copies:
        return
    mx.Context.devstr2type["gpu"] = CPU
    for context in [each for each in gc.get_objects() if issubclass(type(each), mx.Context)]:
        context.device_typeid = CPU
    for param, copy in copies:
        param._init_impl(copy, list(param._ctx_list))
