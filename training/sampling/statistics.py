"""Averages BatchNorm's running statistics (mean and variance) over the workers. Pure sums.

Each worker sees only its own share of the samples, so the running statistics of the workers differ. The averages equal
the statistics over all samples together. The workers' means are weighted by their numbers of samples, and the variance
follows from the law of total variance. Each worker contributes one vector of doubles, [weight, weight * mean, weight *
(variance + mean^2)], and the vectors are summed. A lost worker contributes neither values nor weight, so the averages
are still correct.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def weighted_moments(means: Doubles, variances: Doubles, weight: float) -> Doubles:
    """Return a worker's vector for the sum over the workers, of shape (1 + 2n,) for n means and n variances."""
    return np.concatenate([[weight], weight * means, weight * (variances + means**2)])


def averages_of(summed: Doubles) -> tuple[Doubles, Doubles] | None:
    """Return the means and variances over all workers, from the sum of the workers' vectors.

    Returns None if no worker had any sample.

    All workers have the same sum, so all workers get exactly the same result.
    """
    if summed[0] <= 0:
        return None
    means, mean_squares = np.split(summed[1:] / summed[0], 2)
    return means, np.maximum(mean_squares - means**2, 0.0)
