"""Which names of MXNet are the elastic ones, and where those are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULE, _SAVED = "dyntrain.training.module", "dyntrain.training.worker.state.saved_model"
REPLACED: dict[str, dict[str, str]] = {  # module of MXNet: name: home
    "module": {"Module": _MODULE, "BaseDataIterator": _MODULE},
    "kvstore": {"create": _MODULE},
    "callback": {"do_checkpoint": _SAVED, "module_checkpoint": _SAVED},
    "model": {"save_checkpoint": _SAVED},
}


def load(home: str, name: str) -> Any:
    """Imports what the name stands for: not before it is used, as that imports MXNet itself."""
    return getattr(import_module(home), name)
