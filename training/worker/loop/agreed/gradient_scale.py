"""Factor of a Module's summed gradients that makes them those of one process.

It holds however the script divides the batch: as many samples for each worker, or one batch over all of them.
"""

from __future__ import annotations

import json
from typing import Any

from dyntrain.training.worker.refused import RefusedByAll

NORMALISED = ("batch", "valid")
MEANS_OF_UNEQUAL = (
    "{op}(normalization={how!r}) takes the mean of each worker's own batch, and these have different sizes: give all "
    "workers the same batch, or leave normalization out"
)
SUMS_AND_MEANS = (
    "one output has normalization={how!r} and another has not: dividing the batch changes their proportion. Leave "
    "normalization out, or give all workers the batch of one process"
)


class GradientScale:
    """Factors for a script whose optimizer has the factor `declared` in one process, with `batch` samples.

    Its gradients are sums over samples, except for outputs whose `normalization` makes means of them.
    """

    def __init__(self, declared: float, batch: int, symbol: Any) -> None:
        self._declared, self._batch = declared, batch
        self._normalised, self._plain = _outputs(symbol)

    def divided(self, total: float, squares: float, workers: int) -> float:
        """Factor for workers whose batches have `total` samples and the sum `squares` of their squares.

        Raises RefusedByAll, on all workers alike, if no factor is right.
        """
        of_sums = self._declared * (self._batch / total)
        if self._normalised is None:
            return of_sums
        op, how = self._normalised
        if squares * workers != total * total:
            raise RefusedByAll(MEANS_OF_UNEQUAL.format(op=op, how=how))
        if self._plain and total != self._batch * workers:
            raise RefusedByAll(SUMS_AND_MEANS.format(how=how))
        return self._declared / workers


def _outputs(symbol: Any) -> tuple[tuple[str, str] | None, bool]:
    """An output that normalises its gradient, as (operator, how), and whether another does not."""
    graph = json.loads(symbol.tojson())
    normalised, plain = None, False
    for number, *_ in graph["heads"]:
        node = graph["nodes"][number]
        how = node.get("attrs", {}).get("normalization")
        if how in NORMALISED:
            normalised = (node["op"], how)
        elif node["op"] != "BlockGrad":
            plain = True
    return normalised, plain
