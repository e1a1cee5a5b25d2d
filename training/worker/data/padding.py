"""Whether a `batchify_fn` makes the samples of a batch as large as the largest: sentences padded to the longest one.

A worker has a share of the batch, whose longest is another. Where the padded length counts, as in a mean over all
places, the share then trains on other numbers than the batch would, and nothing would look wrong; where it does not,
as under a mask, loading the whole batch for it would be a waste. Only the script knows: so it has to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SAY = (
    "Say job.loader(..., whole_batch=True) where the padded length counts, as in a mean over all places; "
    "whole_batch=False under masks"
)
PADS = "batchify_fn pads a batch to its largest sample, and a worker's share has another one. "
ALONE = "batchify_fn makes nothing of one sample alone, which may be all of a worker's share ({error}). "
LAYS_OUT = (
    "batchify_fn concatenates samples of different sizes: say job.loader(..., whole_batch=False). A mean over all "
    "rows becomes a sum, with trainer.step(epoch.sum(rows))"
)


class PaddingUnsaid(ValueError):
    """`whole_batch` is left out where it may make a difference."""


MOST_LOOKS, MOST_TRIALS = 1000, 16  # batches in each process: later ones are taken to be like these


class Padding:
    """What was seen of one `batchify_fn`; None: Gluon's own, which stacks. `whole_batch` None: nobody said."""

    def __init__(self, batchify: Callable[[list[Any]], Any] | None, whole_batch: bool | None) -> None:
        asks = batchify is not None and whole_batch is None
        self._looks, self._trials = (MOST_LOOKS, MOST_TRIALS) if asks else (0, 0)

    def check(self, samples: Sequence[Any], batch: Any, batchify: Callable[[list[Any]], Any]) -> None:
        """`batch` is what `batchify` made of the samples. Raises PaddingUnsaid, also where it refuses one alone."""
        if not self._looks or not self._trials or len(samples) < 2:
            return
        self._looks -= 1
        if len({repr(_sizes(sample)) for sample in samples}) == 1:
            return
        self._trials -= 1
        for sample in _extremes(samples):
            try:
                alone = batchify([sample])
            except Exception as error:
                raise PaddingUnsaid(ALONE.format(error=f"{type(error).__name__}: {error}") + SAY) from error
            if _depends(batch, alone, len(samples)):
                raise PaddingUnsaid(LAYS_OUT if _lays_out(batch, samples) else PADS + SAY)


def _parts(sample: Any) -> list[Any] | None:
    """Of a sample in several columns."""
    if isinstance(sample, dict):
        return [sample[key] for key in sorted(sample, key=str)]
    if isinstance(sample, list | tuple):
        plain = not sample or not hasattr(sample[0], "__len__")
        return None if isinstance(sample, list) and plain else list(sample)
    return None


def _sizes(sample: Any) -> Any:
    """Of arrays, texts and sequences; None for what has no size, as a number."""
    if (shape := getattr(sample, "shape", None)) is not None:
        return tuple(shape)
    if (parts := _parts(sample)) is not None:
        return [_sizes(part) for part in parts]
    return (len(sample),) if hasattr(sample, "__len__") else None


def _extent(sample: Any) -> int:
    """How many numbers or letters are in it, about."""
    if isinstance(size := getattr(sample, "size", None), int):
        return size
    if (parts := _parts(sample)) is not None:
        return sum(map(_extent, parts))
    return len(sample) if hasattr(sample, "__len__") else 1


def _extremes(samples: Sequence[Any]) -> list[Any]:
    """The smallest and the largest, all in all and in each column."""
    columns = [[_extent(sample) for sample in samples]]
    if _parts(samples[0]) is not None:
        columns += [[_extent(part) for part in column] for column in zip(*map(_parts, samples), strict=False)]
    places = {end(range(len(samples)), key=column.__getitem__) for column in columns for end in (min, max)}
    return [samples[place] for place in sorted(places)]


def _lays_out(batch: Any, samples: Sequence[Any]) -> bool:
    """Whether anything has as many rows as the samples have together, of which they have different numbers: a row each
    is a stack.
    """
    if isinstance(batch, dict):
        batch = [batch[key] for key in sorted(batch, key=str)]
    if isinstance(batch, list | tuple):
        parts = [_parts(sample) for sample in samples]
        columns = zip(*(each for each in parts if each is not None), strict=False)
        return any(_lays_out(one, column) for one, column in zip(batch, columns, strict=False))
    rows = [size[0] for sample in samples if isinstance(size := _sizes(sample), tuple) and size]
    return len(rows) == len(samples) and len(set(rows)) > 1 and getattr(batch, "shape", ())[:1] == (sum(rows),)


def _depends(batch: Any, alone: Any, samples: int) -> bool:
    """Whether what became of one sample has other sizes than with the others beside it, its own axis aside."""
    if isinstance(batch, dict) and isinstance(alone, dict):
        batch, alone = ([each[key] for key in sorted(each, key=str)] for each in (batch, alone))
    if isinstance(batch, list | tuple) and isinstance(alone, list | tuple):
        if (len(batch), len(alone)) == (samples, 1):  # one beside another, each as it is
            return False
        return len(batch) != len(alone) or any(
            _depends(one, other, samples) for one, other in zip(batch, alone, strict=True)
        )
    sizes, own = getattr(batch, "shape", ()), getattr(alone, "shape", ())
    if len(sizes) != len(own):
        return True
    unequal = [(one, other) for one, other in zip(sizes, own, strict=True) if one != other]
    return bool(unequal) and (len(unequal) > 1 or unequal[0][0] != samples * unequal[0][1])
