"""Running statistics (BatchNorm's mean and variance) averaged over the workers. Pure sums.

Each worker sees only its own share of the samples, so the running statistics of the workers differ. The averages are as
if computed over all samples together: the mean is weighted by samples, and the variance follows from the law of total
variance, which also needs the squares of the means. Workers exchange one vector of doubles that can be summed: [weight,
weight * mean, weight * (variance + mean^2)]. A lost worker adds neither values nor weight, so the result stays right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def weighted(means: Doubles, variances: Doubles, weight: float) -> Doubles:
    """A worker's vector for the sum, of shape (1 + 2n,) for n means and n variances."""
    return np.concatenate([[weight], weight * means, weight * (variances + means**2)])


def averaged(summed: Doubles) -> tuple[Doubles, Doubles] | None:
    """Means and variances from the sum over the workers. Returns None if no worker had a sample.

    All workers have the same sum, so all get the same bits.
    """
    if summed[0] <= 0:
        return None
    means, mean_squares = np.split(summed[1:] / summed[0], 2)
    return means, np.maximum(mean_squares - means**2, 0.0)
