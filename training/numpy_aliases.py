"""Restores NumPy's old names, which MXNet uses, and imports MXNet; import this module before `mxnet`.

If packages for training are missing, the error says what to install. `scipy.stats` is imported only at its first use:
the module takes a third of the import's time in every worker and ps-lite server, and only MXNet's test utilities and
quantization use it. `dyntrain.numpy_names` contains NumPy's old names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dyntrain.missing import TRAINING, require

require(TRAINING)

from dyntrain.numpy_names import restore_numpy_names  # noqa: E402

DEFERRED = "scipy.stats"


class _LazyModule(ModuleType):
    """Stand-in for a module, which is imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # some libraries inspect all loaded modules
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """Within the `with` block, imports of the module return a stand-in, which imports the module at its first use."""
    if name in sys.modules or find_spec(name.partition(".")[0]) is None:
        yield
        return
    sys.modules[name] = _LazyModule(name)
    try:
        yield
    finally:
        del sys.modules[name]


restore_numpy_names()
with deferred(DEFERRED):
    import mxnet  # noqa: F401
