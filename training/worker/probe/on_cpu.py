"""Move a script's parameters from GPUs to the CPU, because arrays on a GPU do not survive a fork.

This module has never run on a GPU, only with CPUs in place of GPUs.
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
    """Copy all parameters that are on GPUs to the CPU, in the parent."""
    params = [each for each in gc.get_objects() if issubclass(type(each), gluon.Parameter)]
    on_gpus = (p for p in params if p._data is not None and any(map(is_gpu, p.list_ctx())))
    return [(p, p.list_data()[0].copyto(mx.cpu())) for p in on_gpus]


def move_to_cpu(copies: Copies) -> None:
    """Make the child use CPU k in place of GPU k, with the copies as its parameters.

    The script's other arrays on a GPU do not exist in the child, which ends when it uses one.
    """
    if not copies:
        return
    mx.Context.devstr2type["gpu"] = CPU
    for context in [each for each in gc.get_objects() if issubclass(type(each), mx.Context)]:
        context.device_typeid = CPU
    for param, copy in copies:
        param._init_impl(copy, list(param._ctx_list))
