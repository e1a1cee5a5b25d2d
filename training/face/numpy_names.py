"""Makes `import mxnet` work with NumPy 1.24 and later, which lack names that MXNet 1.9.1 uses.

In every environment with dyntrain, each Python process imports this module at its start, through
`dyntrain-numpy-names.pth`. To keep the start of Python fast, this module imports almost nothing. The module installs a
finder for the import of MXNet, which costs every other import one comparison of names. The finder is not installed in a
Python that ignores its site packages (option -S).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # avoids `import typing`, which would be most of the cost
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MXNET = "mxnet"
WORKER_VARIABLE = "DYNTRAIN_CONTROL_FILE"  # set in a job's processes
REMOVED_NAMES = {"bool": bool, "int": int, "float": float, "object": object}


def restore_numpy_names() -> None:
    """Add the names that NumPy 1.24 removed to NumPy again. Raises ImportError if NumPy is not installed."""
    import numpy as np

    for numpy_name, python_type in REMOVED_NAMES.items():
        if numpy_name not in vars(np):
            setattr(np, numpy_name, python_type)


class MxnetFinder:
    """An import finder for MXNet, which makes `restore_numpy_names` run before MXNet's module is executed."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MXNET:
            return None
        for finder in sys.meta_path:
            if finder is cls or not hasattr(finder, "find_spec"):
                continue
            mxnet_spec = finder.find_spec(name, path, target)
            if mxnet_spec is not None:
                _restore_names_before(mxnet_spec)
                return mxnet_spec
        return None


def _restore_names_before(spec: ModuleSpec) -> None:
    loader = spec.loader
    if loader is None or not hasattr(loader, "exec_module"):
        return
    execute_module = loader.exec_module

    def restore_and_execute(module: ModuleType) -> None:
        from contextlib import suppress

        with suppress(ImportError):  # MXNet then fails with its own error
            restore_numpy_names()
        execute_module(module)
        if WORKER_VARIABLE in os.environ:  # only without `dyntrain.training.dt_scripts`, which bypasses this finder
            from dyntrain.training.dt_scripts.wanted import install_advice

            install_advice(module)

    loader.exec_module = restore_and_execute  # type: ignore[method-assign]  # a loader object made for this import only


def wait_for_mxnet() -> None:
    """Install the import finder for MXNet in this process."""
    if MXNET not in sys.modules and MxnetFinder not in sys.meta_path:
        sys.meta_path.insert(0, MxnetFinder)
