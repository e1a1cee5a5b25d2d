"""MXNet for scripts of AWS Dynamic Training: `import training.elastic_mxnet as mx` in place of `import mxnet as mx`, nothing else changed.

`mx.mod.Module`, `mx.mod.BaseDataIterator` and `mx.kvstore.create` are the elastic ones; every other name is MXNet's own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet  # isort: skip

from training.module import BaseDataIterator, Module, create


class _Overlay(ModuleType):
    """A module of MXNet with some names replaced."""

    def __init__(self, below: ModuleType, **replaced: Any) -> None:
        super().__init__(below.__name__, below.__doc__)
        self._below = below
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


mod = module = _Overlay(mxnet.mod, Module=Module, BaseDataIterator=BaseDataIterator)
kv = kvstore = _Overlay(mxnet.kvstore, create=create)


def __getattr__(name: str) -> Any:
    return getattr(mxnet, name)
