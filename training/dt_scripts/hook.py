"""Replaces names in MXNet's modules by elastic ones (`names.REPLACED`) while MXNet is imported.

All forms of the import get the elastic names: `import mxnet as mx`, `from mxnet import mod`, `from mxnet.module import
Module`. Names that one MXNet module imported from another stay unchanged: `BucketingModule` and
`mxnet.module.module.Module` are MXNet's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from dyntrain.training.dt_scripts.names import REPLACED, load

MXNET = "mxnet"


class _ImportedOnUse:
    """A module's attribute that is imported from another module at first use.

    The attribute is set on the module's class, where Python looks first.
    """

    def __init__(self, elastic_module: str, name: str) -> None:
        self._home, self._name = elastic_module, name

    def __get__(self, module: Any, kind: type) -> Any:
        return load(self._home, self._name)

    def __set__(self, module: Any, value: Any) -> None:
        raise AttributeError(f"{module.__name__}.{self._name} is dyntrain's elastic version and cannot be replaced")


def replace_names(mxnet: ModuleType) -> None:
    """Replace the names in MXNet's modules."""
    for module_name, replaced_names in REPLACED.items():
        module = getattr(mxnet, module_name)
        lazy_attributes = {
            name: _ImportedOnUse(elastic_module, name) for name, elastic_module in replaced_names.items()
        }
        module.__class__ = type("ElasticModule", (type(module),), lazy_attributes)


class _Loader(Loader):
    """Loads MXNet with its own loader, and then replaces the names in its modules."""

    def __init__(self, original: Loader) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:  # further methods of a file loader
        return getattr(self._original, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # numpy_aliases imports mxnet too, and gets the module that is being loaded here.
        from dyntrain.training.numpy_aliases import DEFERRED, deferred

        with deferred(DEFERRED):
            self._original.exec_module(module)
        replace_names(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == MXNET else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install_hook() -> None:
    """Install the hook for this process's first `import mxnet`."""
    sys.meta_path.insert(0, _Finder())
