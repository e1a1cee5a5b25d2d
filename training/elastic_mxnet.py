"""MXNet with elastic classes, which scripts of AWS Dynamic Training import in place of `mxnet`.

    import dyntrain.training.elastic_mxnet as mx        in place of `import mxnet as mx`

With `dyntrain launch --dt-scripts` a script's imports need no change (`dyntrain.training.dt_scripts`). In this module
`mx.mod.Module`, `mx.mod.BaseDataIterator` and `mx.kvstore.create` are elastic: workers can join and leave. Only one
worker writes the checkpoints of `mx.callback` and `mx.model`. All other names of this module are MXNet's own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # must precede mxnet

import mxnet  # isort: skip

from dyntrain.training.dt_scripts.names import REPLACED_NAMES, load_counterpart


class _Overlay(ModuleType):
    """A module that acts as a module of MXNet, with some names replaced by elastic ones."""

    def __init__(self, part: str) -> None:
        original_module = getattr(mxnet, part)
        super().__init__(original_module.__name__, original_module.__doc__)
        self._original, self._replacing_modules = original_module, REPLACED_NAMES[part]

    def __getattr__(self, name: str) -> Any:
        if name in self._replacing_modules:
            return load_counterpart(self._replacing_modules[name], name)
        return getattr(self._original, name)


mod = module = _Overlay("module")
kv = kvstore = _Overlay("kvstore")
callback, model = _Overlay("callback"), _Overlay("model")


def __getattr__(name: str) -> Any:
    return getattr(mxnet, name)
