"""Import this before mxnet: it puts back the names of NumPy that MXNet takes (`dyntrain.numpy_names`), and says what to
install where training's packages are absent. It imports MXNet, without `scipy.stats` where SciPy is there:
MXNet's test utilities and its quantization ask for that and nothing else does, and it is a third of what the import
costs every worker and every ps-lite server. They get it when they first use it.
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
    """A module that is imported when something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # some library looks at all modules that there are
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """Whoever imports the module meanwhile is given a stand-in for it; whoever does later, the module."""
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
