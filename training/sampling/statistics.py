"""Running statistics (BatchNorm's mean and variance) averaged over the workers. Pure sums.

Each worker sees its own share, so its running statistics drift from those of the others. The averages are those of all
samples together: the mean is weighted by samples, and the variance follows from the law of total variance, which also
needs the squares of the means. Workers exchange one vector of doubles that can be summed: [weight, weight * mean,
weight * (variance + mean^2)]. A lost worker adds neither values nor weight, so the result stays right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def weighted(means: Doubles, variances: Doubles, weight: float) -> Doubles:
    """A worker's contribution to the sum; shape (1 + 2n,) for n values each."""
    return np.concatenate([[weight], weight * means, weight * (variances + means**2)])


def averaged(total: Doubles) -> tuple[Doubles, Doubles] | None:
    """Means and variances from the sum over the workers; None if no worker had a sample.

    All workers have the same sum, so all get the same bits.
    """
    if total[0] <= 0:
        return None
    means, squares = np.split(total[1:] / total[0], 2)
    return means, np.maximum(squares - means**2, 0.0)
