"""Detects a `batchify_fn` that pads the samples of a batch, such as sentences, to the size of the largest sample.

A worker's share of a batch may be padded to another length than the whole batch. If the loss depends on the padded
length, as a mean over all positions does, training on shares silently changes the results. If the loss does not depend
on the padded length, as with a mask, loading the whole batch on each worker would waste time. Only the script's author
knows whether the loss depends on the padded length, so the script must give the argument `whole_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PAD_ADVICE = (
    "Pass job.loader(..., whole_batch=True) if the loss depends on the padded length, as a mean over all places does; "
    "whole_batch=False if a mask hides the padding"
)
PADDING_TEXT = "batchify_fn pads a batch to its largest sample, and a worker's share may have a smaller one. "
FAILS_ALONE = "batchify_fn fails for a single sample, which may be all of a worker's share ({error}). "
CONCAT_ERROR = (
    "batchify_fn concatenates samples of different sizes: pass job.loader(..., whole_batch=False). Replace a mean "
    "over all rows by a sum, with trainer.step(epoch.sum(rows))"
)


class PaddingError(ValueError):
    """The script must give the argument `whole_batch`, since the padding of samples may change the results."""


MOST_CHECKS, MOST_TRIALS = 1000, 16  # most batches compared by size, and tried as single samples, in each process


class PaddingCheck:
    """Checks whether a script's `batchify_fn` pads samples, unless the script gives `whole_batch`."""

    def __init__(self, batchify: Callable[[list[Any]], Any] | None, whole_batch: bool | None) -> None:
        checks_padding = batchify is not None and whole_batch is None
        self._checks_left, self._trials_left = (MOST_CHECKS, MOST_TRIALS) if checks_padding else (0, 0)

    def check(self, samples: Sequence[Any], batch: Any, batchify: Callable[[list[Any]], Any]) -> None:
        """Check whether `batchify` padded `samples` when it made `batch`.

        Raises PaddingError if the sizes of a sample's arrays depend on the batch's other samples, or if `batchify`
        fails for a single sample.
        """
        if not self._checks_left or not self._trials_left or len(samples) < 2:
            return
        self._checks_left -= 1
        if len({repr(_sizes_of(sample)) for sample in samples}) == 1:
            return
        self._trials_left -= 1
        for sample in _extreme_samples(samples):
            try:
                single_batch = batchify([sample])
            except Exception as error:
                raise PaddingError(FAILS_ALONE.format(error=f"{type(error).__name__}: {error}") + PAD_ADVICE) from error
            if _depends_on_batch(batch, single_batch, len(samples)):
                raise PaddingError(CONCAT_ERROR if _concatenates(batch, samples) else PADDING_TEXT + PAD_ADVICE)


def _columns_of(sample: Any) -> list[Any] | None:
    """Return the columns of a sample (such as image and label), or None for a sample with one column."""
    if isinstance(sample, dict):
        return [sample[key] for key in sorted(sample, key=str)]
    if isinstance(sample, list | tuple):
        has_one_column = not sample or not hasattr(sample[0], "__len__")
        return None if isinstance(sample, list) and has_one_column else list(sample)
    return None


def _sizes_of(sample: Any) -> Any:
    """Return the sizes of an array, string or sequence, or None for a value without a size, such as a number."""
    if (shape := getattr(sample, "shape", None)) is not None:
        return tuple(shape)
    if (sample_columns := _columns_of(sample)) is not None:
        return [_sizes_of(column_value) for column_value in sample_columns]
    return (len(sample),) if hasattr(sample, "__len__") else None


def _approximate_size(sample: Any) -> int:
    """Return roughly how many numbers or letters a sample contains."""
    if isinstance(size := getattr(sample, "size", None), int):
        return size
    if (sample_columns := _columns_of(sample)) is not None:
        return sum(map(_approximate_size, sample_columns))
    return len(sample) if hasattr(sample, "__len__") else 1


def _extreme_samples(samples: Sequence[Any]) -> list[Any]:
    """Return the smallest and the largest samples, measured as a whole and by each of their columns."""
    column_sizes = [[_approximate_size(sample) for sample in samples]]
    if _columns_of(samples[0]) is not None:
        column_sizes += [
            [_approximate_size(column_value) for column_value in column]
            for column in zip(*map(_columns_of, samples), strict=False)
        ]
    extreme_indices = {
        extreme_of(range(len(samples)), key=sizes.__getitem__) for sizes in column_sizes for extreme_of in (min, max)
    }
    return [samples[index] for index in sorted(extreme_indices)]


def _concatenates(batch: Any, samples: Sequence[Any]) -> bool:
    """Whether an array of the batch concatenates samples with different numbers of rows.

    The result is False if every sample has one row, since samples of one row are stacked.
    """
    if isinstance(batch, dict):
        batch = [batch[key] for key in sorted(batch, key=str)]
    if isinstance(batch, list | tuple):
        sample_columns = [_columns_of(sample) for sample in samples]
        columns = zip(
            *(columns_of_sample for columns_of_sample in sample_columns if columns_of_sample is not None), strict=False
        )
        return any(_concatenates(batch_part, column) for batch_part, column in zip(batch, columns, strict=False))
    row_counts = [size[0] for sample in samples if isinstance(size := _sizes_of(sample), tuple) and size]
    return (
        len(row_counts) == len(samples)
        and len(set(row_counts)) > 1
        and getattr(batch, "shape", ())[:1] == (sum(row_counts),)
    )


def _depends_on_batch(batch: Any, single_batch: Any, samples: int) -> bool:
    """Whether a sample has other sizes in `batch` than alone in `single_batch`, apart from the samples' axis."""
    if isinstance(batch, dict) and isinstance(single_batch, dict):
        batch, single_batch = (
            [batch_dict[key] for key in sorted(batch_dict, key=str)] for batch_dict in (batch, single_batch)
        )
    if isinstance(batch, list | tuple) and isinstance(single_batch, list | tuple):
        if (len(batch), len(single_batch)) == (samples, 1):  # a list of the samples, each unchanged
            return False
        return len(batch) != len(single_batch) or any(
            _depends_on_batch(batch_part, single_part, samples)
            for batch_part, single_part in zip(batch, single_batch, strict=True)
        )
    batch_shape, single_shape = getattr(batch, "shape", ()), getattr(single_batch, "shape", ())
    if len(batch_shape) != len(single_shape):
        return True
    unequal_sizes = [
        (batch_size, single_size)
        for batch_size, single_size in zip(batch_shape, single_shape, strict=True)
        if batch_size != single_size
    ]
    return bool(unequal_sizes) and (len(unequal_sizes) > 1 or unequal_sizes[0][0] != samples * unequal_sizes[0][1])
