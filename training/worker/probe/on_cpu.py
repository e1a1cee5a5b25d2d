"""Move a script's parameters from GPUs to the CPU, because a forked child process cannot use its parent's GPU arrays.

This module has never run on a GPU, only with CPUs in place of GPUs.
"""

from __future__ import annotations

import gc
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet import gluon

CPU_TYPE = mx.Context.devstr2type["cpu"]
Copies = list[tuple[Any, Any]]  # parameters, and copies in the host's memory


def is_gpu(context: Any) -> bool:
    return bool(context.device_typeid != CPU_TYPE)


def copy_to_cpu() -> Copies:
    """In the parent process, before the fork, copy all parameters that are on GPUs to the host's memory."""
    params = [
        tracked_object for tracked_object in gc.get_objects() if issubclass(type(tracked_object), gluon.Parameter)
    ]
    params_on_gpus = (param for param in params if param._data is not None and any(map(is_gpu, param.list_ctx())))
    return [(param, param.list_data()[0].copyto(mx.cpu())) for param in params_on_gpus]


def move_to_cpu(copies: Copies) -> None:
    """Make this child process use MXNet's CPU device k in place of GPU k, with `copies` as the values of its
    parameters.

    Arrays on a GPU that are not parameters are not copied. The child process ends when it uses an array that is not
    copied.
    """
    if not copies:
        return
    mx.Context.devstr2type["gpu"] = CPU_TYPE
    for context in [
        tracked_object for tracked_object in gc.get_objects() if issubclass(type(tracked_object), mx.Context)
    ]:
        context.device_typeid = CPU_TYPE
    for param, cpu_copy in copies:
        param._init_impl(cpu_copy, list(param._ctx_list))
