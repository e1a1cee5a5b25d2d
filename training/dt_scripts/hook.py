"""Replaces names of MXNet by the elastic ones (`names.REPLACED`) in MXNet's modules, while MXNet is imported.

So all forms of the import get them: `import mxnet as mx`, `from mxnet import mod`, `from mxnet.module import Module`.
Names that MXNet's modules imported from each other stay: `BucketingModule` and the other modules are MXNet's, and so is
`mxnet.module.module.Module`.
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


class _ImportedOnUse:
    """An attribute of a module that is imported from elsewhere at first use.

    It is set on the module's class, where Python looks before the module itself.
    """

    def __init__(self, home: str, name: str) -> None:
        self._home, self._name = home, name

    def __get__(self, module: Any, kind: type) -> Any:
        return load(self._home, self._name)

    def __set__(self, module: Any, value: Any) -> None:
        raise AttributeError(f"{module.__name__}.{self._name} is the elastic one, and stays")


def replace_names(mxnet: ModuleType) -> None:
    """Replace the names in MXNet's modules."""
    for part, names in REPLACED.items():
        module = getattr(mxnet, part)
        attributes = {name: _ImportedOnUse(home, name) for name, home in names.items()}
        module.__class__ = type("ElasticModule", (type(module),), attributes)


class _Loader(Loader):
    """MXNet's loader, followed by the replacement."""

    def __init__(self, original: Loader) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:  # further methods of a file loader
        return getattr(self._original, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # This module imports mxnet too, and gets the one that is being loaded here.
        from dyntrain.training.numpy_aliases import DEFERRED, deferred

        with deferred(DEFERRED):
            self._original.exec_module(module)
        replace_names(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == NAME else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install_hook() -> None:
    """Install the hook for this process's first `import mxnet`."""
    sys.meta_path.insert(0, _Finder())
