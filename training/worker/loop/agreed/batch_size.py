"""Find what a script's `n` in `trainer.step(n)` stands for, such as a batch size or a number of samples. Pure.

In one process, a script may pass to `trainer.step` a fixed batch size, or the number of samples in the current batch.
If gradients accumulate over several batches, `n` may be the size of one batch or of all accumulated batches. A worker
has only a share of the whole batch, so an expression like `len(data)` gives a smaller `n` on a worker than in one
process. A meaning fits if the number that it predicts equals `n` in this step and in all earlier steps. `n` is refused
if no meaning fits, or if several meanings fit that need different divisors of the gradients.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

N_DIVIDES = "as it is"  # `n` itself is the divisor: the number of means that were added up


class UnclearBatchSize(Exception):
    """The number `n` in `trainer.step(n)` has no possible meaning, or is ambiguous.

    `code` is the code of the rule that the script breaks. `values` are the numbers and names to insert in the rule's
    message.
    """

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(code, values)
        self.code, self.values = code, values


@dataclass(frozen=True)
class SampleCounts:
    """Numbers of samples since the last update, as pairs: for the latest batch, and for all batches since that update.

    `own` is for this worker; its second number is None if the worker has joined since the last update.
    """

    nominal: tuple[int, int]  # the script's batch size
    full: tuple[int, int]  # the batch size over all workers
    own: tuple[int, int | None]  # samples of this worker
    all_: tuple[int, int]  # samples of all workers
    per_worker: bool = False  # whether `nominal` is each worker's batch size
    group: int = 1  # batches per update; an epoch's last update may have fewer

    def meanings(self, n: float) -> dict[str, tuple[int | None, int]]:
        """Return for each possible meaning of `n`, by name, the `n` that it expects and the divisor of the summed
        gradients.

        If gradients accumulate, `n` may be the size of more or fewer batches than were accumulated, because a script
        may restart its own count of batches in each epoch.
        """
        meanings: dict[str, tuple[int | None, int]] = {}
        for index, span in enumerate(("last", "all")):
            samples = self.all_[index]
            meanings[f"{span}: batch size"] = (self.nominal[index], samples if self.per_worker else self.full[index])
            meanings[f"{span}: batch size of all workers"] = (
                self.full[index],
                samples if self.per_worker else self.full[index],
            )
            meanings[f"{span}: samples here"] = (self.own[index], samples)
            meanings[f"{span}: samples of all workers"] = (samples, samples)
        if n > 0 and self.all_[1] > self.all_[0] and n % self.nominal[0] == 0 and not self.per_worker:
            batch_count = int(n) // self.nominal[0]
            meanings[f"batch size of {batch_count} batches"] = (int(n), self.full[0] * batch_count)
        if self.group > 1:
            meanings["group: batch size"] = (self.nominal[0] * self.group, self.full[0] * self.group)
        return meanings


def find_divisor(n: float, counts: SampleCounts, known_meanings: Collection[str] | None) -> tuple[int, list[str]]:
    """Return the divisor of the summed gradients, and the names of the meanings that fit `n`.

    `known_meanings` are the meanings of `n` that fitted all earlier steps. Raises UnclearBatchSize if no meaning fits
    `n`, or if several meanings with different divisors fit.
    """
    meanings = counts.meanings(n)
    divisors_by_meaning = {
        meaning: fitting_divisor
        for meaning, (expected_n, fitting_divisor) in meanings.items()
        if expected_n == n and (known_meanings is None or meaning in known_meanings)
    }
    if not divisors_by_meaning:
        raise UnclearBatchSize("DT401", n=n, here=counts.own[0], all=counts.all_[0], batch=counts.nominal[0])
    if len(set(divisors_by_meaning.values())) > 1:
        raise UnclearBatchSize(
            "DT402", n=n, batches=counts.full[1] // counts.full[0], meanings=" or ".join(sorted(divisors_by_meaning))
        )
    return next(iter(divisors_by_meaning.values())), sorted(divisors_by_meaning)


def divisor_of_means(
    n: float, counts: SampleCounts, known_meanings: Collection[str] | None, means: Collection[int]
) -> tuple[float, list[str], tuple[float, list[str]] | None]:
    """Return the divisor and the meanings as `find_divisor` does, for losses that are means over samples.

    If `n` is in `means`, `n` itself is the divisor, as in one process. If `n` may also be a number of samples, the
    third value is the result of `find_divisor`, otherwise None. Only the votes of workers with other share sizes show
    which divisor is right: `n`, or the divisor in the third value.
    """
    n_is_divisor = n in means and (known_meanings is None or N_DIVIDES in known_meanings)
    try:
        sum_divisor, fitting_meanings = find_divisor(n, counts, known_meanings)
    except UnclearBatchSize:
        if n_is_divisor:
            return n, [N_DIVIDES], None
        raise
    if not n_is_divisor:
        return sum_divisor, fitting_meanings, None
    return (
        (sum_divisor, [N_DIVIDES, *fitting_meanings], None)
        if sum_divisor == n
        else (n, [N_DIVIDES], (sum_divisor, fitting_meanings))
    )
