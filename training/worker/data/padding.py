"""Whether a `batchify_fn` makes the samples of a batch as large as the largest: sentences padded to the longest one.

A worker has a share of the batch, whose longest is another. Where the padded length counts, as in a mean over all
places, the share then trains on other numbers than the batch would, and nothing would look wrong; where it does not,
as under a mask, loading the whole batch for it would be a waste. Only the script knows: so it has to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ASKS = (
    "batchify_fn pads the samples of a batch to the largest of them, and a worker's share alone has another largest. "
    "Say job.loader(..., whole_batch=True) where the padded length counts, as in a mean over all places or in "
    "attention without a mask: each share is padded as the whole batch is, which every worker loads then. Say "
    "whole_batch=False where it changes nothing: under a mask by the lengths, in a sum over the words that there are, "
    "for labels of -1"
)


class PaddingUnsaid(ValueError):
    """`whole_batch` is left out where it may make a difference."""


class Padding:
    """What was seen of one `batchify_fn`."""

    def __init__(self, asks: bool) -> None:
        self._asks = asks

    def check(self, samples: Sequence[Any], made: Any, batchify: Callable[[list[Any]], Any]) -> None:
        """`made` is what became of them. Raises PaddingUnsaid."""
        if not self._asks or len({repr(_sizes(sample)) for sample in samples}) == 1:
            return
        alone = batchify([min(samples, key=_extent)])
        if _depends(made, alone, len(samples)):
            raise PaddingUnsaid(ASKS)
        self._asks = False


def _sizes(sample: Any) -> Any:
    """Of arrays and of sequences; None for what has no size, as a number or a text."""
    if (shape := getattr(sample, "shape", None)) is not None:
        return tuple(shape)
    if isinstance(sample, list | tuple):
        inner = [_sizes(part) for part in sample]
        return inner if any(size is not None for size in inner) else (len(inner),)
    return None


def _extent(sample: Any) -> int:
    """The numbers in it."""
    if (size := getattr(sample, "size", None)) is not None:
        return int(size)
    return sum(map(_extent, sample)) if isinstance(sample, list | tuple) else 1


def _depends(made: Any, alone: Any, samples: int) -> bool:
    """Whether what became of one sample has other sizes than with the others beside it, its own axis aside."""
    if isinstance(made, list | tuple) and isinstance(alone, list | tuple):
        if (len(made), len(alone)) == (samples, 1):  # one beside another, each as it is
            return False
        return len(made) != len(alone) or any(
            _depends(one, other, samples) for one, other in zip(made, alone, strict=True)
        )
    sizes, own = getattr(made, "shape", ()), getattr(alone, "shape", ())
    if len(sizes) != len(own):
        return True
    unequal = [(one, other) for one, other in zip(sizes, own, strict=True) if one != other]
    return unequal not in ([], [(samples, 1)])
