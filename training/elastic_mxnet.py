"""MXNet for scripts of AWS Dynamic Training: the one import to change in them.

    import dyntrain.training.elastic_mxnet as mx        in place of `import mxnet as mx`

(With `dyntrain launch --dt-scripts` not even that: `dyntrain.training.dt_scripts`.) `mx.mod.Module`,
`mx.mod.BaseDataIterator` and `mx.kvstore.create` are the elastic ones, and the checkpoints of `mx.callback` and
`mx.model` are written by one worker; every other name is MXNet's own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet  # isort: skip

from dyntrain.training.dt_scripts.names import REPLACED, load


class _Overlay(ModuleType):
    """A module of MXNet with some names replaced."""

    def __init__(self, part: str) -> None:
        below = getattr(mxnet, part)
        super().__init__(below.__name__, below.__doc__)
        self._below, self._homes = below, REPLACED[part]

    def __getattr__(self, name: str) -> Any:
        return load(self._homes[name], name) if name in self._homes else getattr(self._below, name)


mod = module = _Overlay("module")
kv = kvstore = _Overlay("kvstore")
callback, model = _Overlay("callback"), _Overlay("model")


def __getattr__(name: str) -> Any:
    return getattr(mxnet, name)
