"""Restores the names of NumPy that MXNet uses (`dyntrain.numpy_names`), then imports MXNet: import this first.

If training's packages are missing, it says what to install. MXNet is imported without `scipy.stats`, which only its
test utilities and its quantization use, and which is a third of the import's cost for every worker and ps-lite server.
They get it at first use.
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

from dyntrain.numpy_names import put_back  # noqa: E402

DEFERRED = "scipy.stats"


class _WhenUsed(ModuleType):
    """A module that is imported at first use."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # some libraries inspect all loaded modules
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """Let imports of the module within the block get a stand-in, which imports the module at first use."""
    if name in sys.modules or find_spec(name.partition(".")[0]) is None:
        yield
        return
    sys.modules[name] = _WhenUsed(name)
    try:
        yield
    finally:
        del sys.modules[name]


put_back()
with deferred(DEFERRED):
    import mxnet  # noqa: F401
