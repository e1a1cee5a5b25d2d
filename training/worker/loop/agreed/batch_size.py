"""Find the meaning of the number `n` in `trainer.step(n)`. Pure.

In one process a script may pass a fixed batch size, or the number of samples in the current batch. If gradients
accumulate over several batches, `n` may be for one batch or for all. A worker's batch is only a share of the whole
batch, so the same expression gives another number there. The right meaning fits this step and all earlier steps. `n` is
refused if no meaning fits, or if meanings with different results fit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

N_DIVIDES = "as it is"  # `n` itself is the divisor: the number of means that were added up


class NoMeaning(Exception):
    """The number in `trainer.step(n)` fits no meaning, or several.

    `code`: a rule's code. `values`: for the rule's message.
    """

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(code, values)
        self.code, self.values = code, values


@dataclass(frozen=True)
class Counts:
    """Numbers of samples since the last update; a pair is for the last batch and for all batches.

    `nominal`: the script's batch size. `full`: the batch size over all workers. `per_worker`: whether `nominal` is each
    worker's batch size. `own`: samples of this worker, or None if unknown, because the worker joined meanwhile. `all_`:
    samples of all workers. `group`: batches per update; an epoch's last update may have fewer.
    """

    nominal: tuple[int, int]
    full: tuple[int, int]
    own: tuple[int, int | None]
    all_: tuple[int, int]
    per_worker: bool = False
    group: int = 1

    def meanings(self, n: float) -> dict[str, tuple[int | None, int]]:
        """Return the possible meanings of `n`, by name: the expected `n`, and the divisor of the summed gradients.

        If gradients accumulate, `n` may be for another number of batches than were accumulated, because a script may
        restart its own count of batches in each epoch.
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
            batches = int(n) // self.nominal[0]
            meanings[f"batch size of {batches} batches"] = (int(n), self.full[0] * batches)
        if self.group > 1:
            meanings["group: batch size"] = (self.nominal[0] * self.group, self.full[0] * self.group)
        return meanings


def divisor(n: float, counts: Counts, known: Collection[str] | None) -> tuple[int, list[str]]:
    """Return the divisor of the summed gradients, and the meanings that fit `n`.

    `known`: meanings that fitted all earlier steps. Raises NoMeaning if no meaning fits, or if several with different
    divisors fit.
    """
    meanings = counts.meanings(n)
    fitting = {
        name: divides
        for name, (expected, divides) in meanings.items()
        if expected == n and (known is None or name in known)
    }
    if not fitting:
        raise NoMeaning("DT401", n=n, here=counts.own[0], all=counts.all_[0], batch=counts.nominal[0])
    if len(set(fitting.values())) > 1:
        raise NoMeaning("DT402", n=n, batches=counts.full[1] // counts.full[0], meanings=" or ".join(sorted(fitting)))
    return next(iter(fitting.values())), sorted(fitting)


def divisor_of_means(
    n: float, counts: Counts, known: Collection[str] | None, means: Collection[int]
) -> tuple[float, list[str], tuple[float, list[str]] | None]:
    """Return divisor and meanings as `divisor` does, for losses that are means.

    If `n` is in `means`, `n` itself is the divisor, as in one process. The third value is the result of `divisor` if
    `n` is also the number of samples in this share, otherwise None. Workers with shares of other sizes know which of
    the two results is right.
    """
    n_divides = n in means and (known is None or N_DIVIDES in known)
    try:
        divides, fitting = divisor(n, counts, known)
    except NoMeaning:
        if n_divides:
            return n, [N_DIVIDES], None
        raise
    if not n_divides:
        return divides, fitting, None
    return (divides, [N_DIVIDES, *fitting], None) if divides == n else (n, [N_DIVIDES], (divides, fitting))
