"""Replaces functions and classes in MXNet's modules by elastic ones (`names.REPLACED_NAMES`) while MXNet is imported.

A script gets the elastic classes by any form of import, such as `import mxnet as mx` or `from mxnet.module import
Module`. Other names in MXNet, such as `BucketingModule` and `mxnet.module.module.Module`, are not replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from dyntrain.training.dt_scripts.names import REPLACED_NAMES, load_counterpart

MXNET = "mxnet"


class _LazyAttribute:
    """An attribute of an MXNet module, whose elastic replacement is imported when the attribute is first used.

    The attribute is a descriptor of the module's class, which Python prefers to the module's own attribute.
    """

    def __init__(self, elastic_module: str, name: str) -> None:
        self._home, self._name = elastic_module, name

    def __get__(self, module: Any, kind: type) -> Any:
        return load_counterpart(self._home, self._name)

    def __set__(self, module: Any, value: Any) -> None:
        raise AttributeError(f"{module.__name__}.{self._name} is dyntrain's elastic version and cannot be replaced")


def replace_names(mxnet: ModuleType) -> None:
    """Replace the names listed in `REPLACED_NAMES` in MXNet's modules."""
    for module_name, replaced_names in REPLACED_NAMES.items():
        module = getattr(mxnet, module_name)
        lazy_attributes = {
            name: _LazyAttribute(elastic_module, name) for name, elastic_module in replaced_names.items()
        }
        module.__class__ = type("ElasticModule", (type(module),), lazy_attributes)


class _MxnetLoader(Loader):
    """Loads MXNet with MXNet's usual loader, and then replaces names in MXNet's modules."""

    def __init__(self, original: Loader) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:  # further methods of a file loader
        return getattr(self._original, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # numpy_aliases imports mxnet too, and gets the module that is being loaded here.
        from dyntrain.training.numpy_aliases import DEFERRED_MODULE, defer_import

        with defer_import(DEFERRED_MODULE):
            self._original.exec_module(module)
        replace_names(module)


class _MxnetFinder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == MXNET else None
        if spec is not None and spec.loader is not None:
            spec.loader = _MxnetLoader(spec.loader)
        return spec


def install_hook() -> None:
    """Install the import hook, which replaces names when this process first imports MXNet."""
    sys.meta_path.insert(0, _MxnetFinder())
