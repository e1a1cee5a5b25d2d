"""Restores NumPy's old names, on which MXNet depends, and imports MXNet; import this module before `mxnet`.

If packages for training are missing, the import raises an error that says what to install. The module `scipy.stats` is
imported only at its first use, as only MXNet's test utilities and quantization use the module. Importing `scipy.stats`
would take a third of the time to import MXNet, in every worker and ps-lite server. The module `dyntrain.numpy_names`
contains NumPy's old names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from dyntrain.missing import TRAINING_PACKAGES, require

require(TRAINING_PACKAGES)

from dyntrain.numpy_names import restore_numpy_names  # noqa: E402

DEFERRED_MODULE = "scipy.stats"  # imported at its first use


class _LazyModule(ModuleType):
    """Stand-in for a module; the module itself is imported when an attribute of the stand-in is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # some libraries inspect all loaded modules
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def defer_import(name: str) -> Iterator[None]:
    """Within the `with` block, imports of the module `name` return a stand-in.

    The stand-in imports the module at the first use of an attribute.
    """
    if name in sys.modules or find_spec(name.partition(".")[0]) is None:
        yield
        return
    sys.modules[name] = _LazyModule(name)
    try:
        yield
    finally:
        del sys.modules[name]


restore_numpy_names()
with defer_import(DEFERRED_MODULE):
    import mxnet  # noqa: F401
