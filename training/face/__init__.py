"""The package's public interface for elastic training on EC2, such as `from dyntrain import ElasticJob`.

Public names are imported when they are first used, so `import dyntrain` loads neither MXNet nor the command line.
"""

from __future__ import annotations

TYPE_CHECKING = False  # avoids `import typing`, which every starting Python would execute (`dyntrain.numpy_names`)
if TYPE_CHECKING:
    from typing import Any

    from dyntrain.training.job import ElasticJob
    from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
    from dyntrain.training.worker.data.shards import Shards

__all__ = ["ElasticJob", "FixedGlobal", "PerWorker", "Shards", "__version__"]

_MODULE_NAMES = {  # the module of each name
    "ElasticJob": "dyntrain.training.job",
    "FixedGlobal": "dyntrain.training.sampling.batching",
    "PerWorker": "dyntrain.training.sampling.batching",
    "Shards": "dyntrain.training.worker.data.shards",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dyntrain")
    if name not in _MODULE_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from dyntrain.missing import TRAINING_PACKAGES, require

    require(("numpy",) if name in ("FixedGlobal", "PerWorker") else TRAINING_PACKAGES)
    return getattr(import_module(_MODULE_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
