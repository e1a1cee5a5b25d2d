"""Factor that scales a Module's summed gradients to those of one process.

The script may give each worker as many samples as one process has, or divide one batch over all workers.
"""

from __future__ import annotations

import json
from typing import Any

from dyntrain.training.worker.refused import RefusedByAll

NORMALISED = ("batch", "valid")
MEANS_OF_UNEQUAL = (
    "{op}(normalization={how!r}) takes the mean of each worker's batch, but the batches have different sizes: give all "
    "workers batches of one size, or leave normalization out"
)
SUMS_AND_MEANS = (
    "one output has normalization={how!r} and another has not: dividing the batch changes their proportion. Leave "
    "normalization out, or give all workers the batch of one process"
)


class GradientScale:
    """Factors for a script whose optimizer has the factor `declared` in one process, with `batch` samples.

    Gradients are sums over samples. Outputs with a `normalization` have means over samples as gradients.
    """

    def __init__(self, declared: float, batch: int, symbol: Any) -> None:
        self._declared, self._batch = declared, batch
        self._normalised, self._plain = _outputs(symbol)

    def factor_for(self, total: float, squares: float, workers: int) -> float:
        """Return the factor for workers whose batches have `total` samples.

        `squares`: sum of the squared sizes of the batches. If no factor is right, all workers raise RefusedByAll.
        """
        of_sums = self._declared * (self._batch / total)
        if self._normalised is None:
            return of_sums
        op, mode = self._normalised
        if squares * workers != total * total:
            raise RefusedByAll(MEANS_OF_UNEQUAL.format(op=op, how=mode))
        if self._plain and total != self._batch * workers:
            raise RefusedByAll(SUMS_AND_MEANS.format(how=mode))
        return self._declared / workers


def _outputs(symbol: Any) -> tuple[tuple[str, str] | None, bool]:
    """Return a normalising output's operator and `normalization`, and whether another output does not normalise."""
    graph = json.loads(symbol.tojson())
    normalised, has_plain = None, False
    for number, *_ in graph["heads"]:
        node = graph["nodes"][number]
        mode = node.get("attrs", {}).get("normalization")
        if mode in NORMALISED:
            normalised = (node["op"], mode)
        elif node["op"] != "BlockGrad":
            has_plain = True
    return normalised, has_plain
