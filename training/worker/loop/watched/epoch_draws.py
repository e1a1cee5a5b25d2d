"""What a script draws by NumPy's and Python's global functions where an epoch begins, as an order of its samples: each
worker draws another, so it is told of. MXNet's generators cannot be asked: its operators say that they draw.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from dyntrain.training.checks.findings import Findings


def _standing() -> dict[str, Any]:
    found: Any = np.random.get_state()
    return {"np.random": (found[2], found[1].tobytes()), "random": random.getstate()}


class EpochDraws:
    """Of one process: it is told once."""

    def __init__(self) -> None:
        self._standing: dict[str, Any] | None = None
        self._told = False
        self._by_mxnet = False

    def drawn(self) -> None:
        """By an operator of MXNet's, outside of batches."""
        self._by_mxnet = True

    def seeded(self) -> None:
        """The job has set the generators."""
        self._by_mxnet = False
        if not self._told:
            self._standing = _standing()

    def begins(self, findings: Findings) -> None:
        """The script's lines before its batches have run."""
        before, self._standing = self._standing, None
        if before is None:
            return
        found = [name for name, standing in _standing().items() if before[name] != standing]
        found += ["mx.random"] if self._by_mxnet else []
        if found:
            self._told = True
            findings.find("DT511", by=" and ".join(found))
