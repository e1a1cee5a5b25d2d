"""Makes names of MXNet the elastic ones (`names.REPLACED`), in MXNet's own modules and as it is imported, so that all
forms of the import find them: `import mxnet as mx`, `from mxnet import mod`, `from mxnet.module import Module`.

What MXNet's own modules took from each other at their import stays what it was: `BucketingModule` and the other modules
are MXNet's, and so is `mxnet.module.module.Module`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from dyntrain.training.dt_scripts.names import REPLACED, load

NAME = "mxnet"


class _Elsewhere:
    """An attribute of a module that is imported from its home when it is used. It is one of the module's class, which
    Python asks before the module itself.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home, self._name = home, name

    def __get__(self, module: Any, kind: type) -> Any:
        return load(self._home, self._name)

    def __set__(self, module: Any, value: Any) -> None:
        raise AttributeError(f"{module.__name__}.{self._name} is the elastic one, and stays")


def replace_names(mxnet: ModuleType) -> None:
    for part, names in REPLACED.items():
        below = getattr(mxnet, part)
        attributes = {name: _Elsewhere(home, name) for name, home in names.items()}
        below.__class__ = type("ElasticModule", (type(below),), attributes)


class _Loader(Loader):
    """MXNet's own, then the replacement."""

    def __init__(self, below: Loader) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:  # what else a loader of files can
        return getattr(self._below, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._below.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # It imports mxnet too, and finds the module that is being made here.
        from dyntrain.training.numpy_aliases import DEFERRED, deferred

        with deferred(DEFERRED):
            self._below.exec_module(module)
        replace_names(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == NAME else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def put_in_the_way() -> None:
    """Of this process's first `import mxnet`."""
    sys.meta_path.insert(0, _Finder())
