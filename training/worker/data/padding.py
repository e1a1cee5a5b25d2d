"""Detection of a `batchify_fn` that pads the samples of a batch to the size of the largest, as with sentences.

A worker's share of the batch may be padded to another length than the whole batch. If the loss depends on the padded
length, as a mean over all positions does, the share silently trains on other numbers. If the loss does not, as under a
mask, it would be a waste to load the whole batch. Only the script's author knows, so the script must say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ADVICE = (
    "Pass job.loader(..., whole_batch=True) if the loss depends on the padded length, as a mean over all places does; "
    "whole_batch=False if a mask hides the padding"
)
PADS_TO_LARGEST = "batchify_fn pads a batch to its largest sample, and a worker's share may have a smaller one. "
FAILS_ALONE = "batchify_fn fails for a single sample, which may be all of a worker's share ({error}). "
CONCATENATES = (
    "batchify_fn concatenates samples of different sizes: pass job.loader(..., whole_batch=False). Replace a mean "
    "over all rows by a sum, with trainer.step(epoch.sum(rows))"
)


class PaddingUnsaid(ValueError):
    """The script does not give `whole_batch`, which may change the results."""


MOST_CHECKS, MOST_TRIALS = 1000, 16  # batches in each process: later ones are assumed to be like these


class Padding:
    """Checks a script's `batchify_fn` (None: Gluon's own, which stacks), unless the script gives `whole_batch`."""

    def __init__(self, batchify: Callable[[list[Any]], Any] | None, whole_batch: bool | None) -> None:
        is_checked = batchify is not None and whole_batch is None
        self._checks_left, self._trials_left = (MOST_CHECKS, MOST_TRIALS) if is_checked else (0, 0)

    def check(self, samples: Sequence[Any], batch: Any, batchify: Callable[[list[Any]], Any]) -> None:
        """Check a `batch` that `batchify` made of `samples`.

        Raises PaddingUnsaid if a sample's arrays depend on the other samples, or if `batchify` fails for one sample.
        """
        if not self._checks_left or not self._trials_left or len(samples) < 2:
            return
        self._checks_left -= 1
        if len({repr(_sizes(sample)) for sample in samples}) == 1:
            return
        self._trials_left -= 1
        for sample in _extremes(samples):
            try:
                alone = batchify([sample])
            except Exception as error:
                raise PaddingUnsaid(FAILS_ALONE.format(error=f"{type(error).__name__}: {error}") + ADVICE) from error
            if _depends(batch, alone, len(samples)):
                raise PaddingUnsaid(CONCATENATES if _concatenates(batch, samples) else PADS_TO_LARGEST + ADVICE)


def _parts(sample: Any) -> list[Any] | None:
    """Return the columns of a sample, or None for a sample with one column."""
    if isinstance(sample, dict):
        return [sample[key] for key in sorted(sample, key=str)]
    if isinstance(sample, list | tuple):
        plain = not sample or not hasattr(sample[0], "__len__")
        return None if isinstance(sample, list) and plain else list(sample)
    return None


def _sizes(sample: Any) -> Any:
    """Return the sizes of an array, string or sequence; None for a value without a size, such as a number."""
    if (shape := getattr(sample, "shape", None)) is not None:
        return tuple(shape)
    if (parts := _parts(sample)) is not None:
        return [_sizes(part) for part in parts]
    return (len(sample),) if hasattr(sample, "__len__") else None


def _extent(sample: Any) -> int:
    """Return roughly how many numbers or letters a sample has."""
    if isinstance(size := getattr(sample, "size", None), int):
        return size
    if (parts := _parts(sample)) is not None:
        return sum(map(_extent, parts))
    return len(sample) if hasattr(sample, "__len__") else 1


def _extremes(samples: Sequence[Any]) -> list[Any]:
    """Return the smallest and the largest sample, as a whole and by each column."""
    columns = [[_extent(sample) for sample in samples]]
    if _parts(samples[0]) is not None:
        columns += [[_extent(part) for part in column] for column in zip(*map(_parts, samples), strict=False)]
    places = {end(range(len(samples)), key=column.__getitem__) for column in columns for end in (min, max)}
    return [samples[place] for place in sorted(places)]


def _concatenates(batch: Any, samples: Sequence[Any]) -> bool:
    """Whether an array of the batch concatenates samples with different numbers of rows.

    Samples of one row each would be stacked.
    """
    if isinstance(batch, dict):
        batch = [batch[key] for key in sorted(batch, key=str)]
    if isinstance(batch, list | tuple):
        parts = [_parts(sample) for sample in samples]
        columns = zip(*(each for each in parts if each is not None), strict=False)
        return any(_concatenates(part, column) for part, column in zip(batch, columns, strict=False))
    rows = [size[0] for sample in samples if isinstance(size := _sizes(sample), tuple) and size]
    return len(rows) == len(samples) and len(set(rows)) > 1 and getattr(batch, "shape", ())[:1] == (sum(rows),)


def _depends(batch: Any, alone: Any, samples: int) -> bool:
    """Whether a sample's sizes in a batch of its own and in `batch` differ, apart from the axis of the samples."""
    if isinstance(batch, dict) and isinstance(alone, dict):
        batch, alone = ([each[key] for key in sorted(each, key=str)] for each in (batch, alone))
    if isinstance(batch, list | tuple) and isinstance(alone, list | tuple):
        if (len(batch), len(alone)) == (samples, 1):  # a list of the samples, each unchanged
            return False
        return len(batch) != len(alone) or any(
            _depends(part, single, samples) for part, single in zip(batch, alone, strict=True)
        )
    sizes, own_sizes = getattr(batch, "shape", ()), getattr(alone, "shape", ())
    if len(sizes) != len(own_sizes):
        return True
    unequal = [(part, single) for part, single in zip(sizes, own_sizes, strict=True) if part != single]
    return bool(unequal) and (len(unequal) > 1 or unequal[0][0] != samples * unequal[0][1])
