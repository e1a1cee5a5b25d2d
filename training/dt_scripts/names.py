"""Lists the names of MXNet that have an elastic counterpart, and the module that contains the counterpart."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULE, _SAVED_MODEL = "dyntrain.training.module", "dyntrain.training.worker.state.saved_model"
REPLACED_NAMES: dict[str, dict[str, str]] = {  # by MXNet's module: each name, and the module of its counterpart
    "module": {"Module": _MODULE, "BaseDataIterator": _MODULE},
    "kvstore": {"create": _MODULE},
    "callback": {"do_checkpoint": _SAVED_MODEL, "module_checkpoint": _SAVED_MODEL},
    "model": {"save_checkpoint": _SAVED_MODEL},
}


def load_counterpart(elastic_module: str, name: str) -> Any:
    """Import the elastic counterpart `name`, and with it MXNet, so call this only when the counterpart is used."""
    return getattr(import_module(elastic_module), name)
