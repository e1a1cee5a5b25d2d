"""Factor of a Module's gradients, by which their sum over the workers equals the gradients of one process.

A script may give each worker a batch of the size that one process has, or divide a batch of that size over all workers.
"""

from __future__ import annotations

import json
from typing import Any

from dyntrain.training.worker.refused import RefusedByAll

NORMALISATIONS = ("batch", "valid")  # values of `normalization` by which an output's gradients are means
UNEQUAL_BATCHES_ERROR = (
    "{op}(normalization={how!r}) takes the mean of each worker's batch, but the batches have different sizes: give all "
    "workers batches of one size, or leave normalization out"
)
SUMS_AND_MEANS_ERROR = (
    "one output has normalization={how!r} and another has not: dividing the batch changes their proportion. Leave "
    "normalization out, or give all workers the batch of one process"
)


class GradientScale:
    """Gradient factors for a script whose batch in one process has `batch` samples. `declared` is the gradient factor
    that the script's optimizer has for a batch of `batch` samples.

    The gradients of an output are sums over samples, or means if the output has a `normalization`.
    """

    def __init__(self, declared: float, batch: int, symbol: Any) -> None:
        self._declared, self._batch = declared, batch
        self._normalised, self._plain = _describe_outputs(symbol)

    def gradient_factor(self, total: float, squares: float, workers: int) -> float:
        """Return the gradient factor for workers whose batches together have `total` samples.

        `squares`: sum of the squared sizes of the batches. If no factor gives the gradients of one process, all workers
        raise RefusedByAll.
        """
        factor_of_sums = self._declared * (self._batch / total)
        if self._normalised is None:
            return factor_of_sums
        operator, normalization = self._normalised
        if squares * workers != total * total:
            raise RefusedByAll(UNEQUAL_BATCHES_ERROR.format(op=operator, how=normalization))
        if self._plain and total != self._batch * workers:
            raise RefusedByAll(SUMS_AND_MEANS_ERROR.format(how=normalization))
        return self._declared / workers


def _describe_outputs(symbol: Any) -> tuple[tuple[str, str] | None, bool]:
    """Return operator and `normalization` of a normalising output, if any, and whether any output has none."""
    graph = json.loads(symbol.tojson())
    normalised_output, has_unnormalised_output = None, False
    for node_index, *_ in graph["heads"]:
        node = graph["nodes"][node_index]
        normalization = node.get("attrs", {}).get("normalization")
        if normalization in NORMALISATIONS:
            normalised_output = (node["op"], normalization)
        elif node["op"] != "BlockGrad":
            has_unnormalised_output = True
    return normalised_output, has_unnormalised_output
