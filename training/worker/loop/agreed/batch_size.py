"""What the number in `trainer.step(n)` stands for. Pure.

In one process a script may pass the batch size that it was written with, or count the samples of the current batch;
with gradients accumulated over several batches, either of one batch or of all. A worker's batch is only its share, so
the same expression gives another number there. The numbers show which meaning the script has: one that fitted every
step so far and fits this one. Two meanings with different results, or none, are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

AS_IT_IS = "as it is"  # of means: of one, or of several that were added up


class NoMeaning(Exception):
    """The number in `trainer.step(n)` fits no meaning, or several: a rule's code, and values for its message."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(code, values)
        self.code, self.values = code, values


@dataclass(frozen=True)
class Counts:
    """Counts of samples in the batches since the last update; in a pair, of the last batch and of all batches.

    `nominal`: the batch size that the script was written with. `full`: what it stands for over all workers.
    `per_worker`: it is each worker's batch size. `own`: samples of this worker (None: unknown, as it joined in
    between). `all_`: samples of all workers. `group`: batches of an update; an epoch's last update may have fewer.
    """

    nominal: tuple[int, int]
    full: tuple[int, int]
    own: tuple[int, int | None]
    all_: tuple[int, int]
    per_worker: bool = False
    group: int = 1

    def meanings(self, n: float) -> dict[str, tuple[int | None, int]]:
        """Possible meanings of `n`: name to (the number that the script passes here, the divisor of the summed
        gradients).

        If gradients accumulate, `n` may be for any number of batches, also for another than have been added up: a
        script may restart its own count in each epoch while it goes on adding.
        """
        meanings: dict[str, tuple[int | None, int]] = {}
        for which, span in enumerate(("last", "all")):
            taken = self.all_[which]
            meanings[f"{span}: batch size"] = (self.nominal[which], taken if self.per_worker else self.full[which])
            meanings[f"{span}: batch size of all workers"] = (
                self.full[which],
                taken if self.per_worker else self.full[which],
            )
            meanings[f"{span}: samples here"] = (self.own[which], taken)
            meanings[f"{span}: samples of all workers"] = (taken, taken)
        if n > 0 and self.all_[1] > self.all_[0] and n % self.nominal[0] == 0 and not self.per_worker:
            batches = int(n) // self.nominal[0]
            meanings[f"batch size of {batches} batches"] = (int(n), self.full[0] * batches)
        if self.group > 1:
            meanings["group: batch size"] = (self.nominal[0] * self.group, self.full[0] * self.group)
        return meanings


def divisor(n: float, counts: Counts, known: Collection[str] | None) -> tuple[int, list[str]]:
    """Divisor of the summed gradients, and the meanings that still fit.

    `known`: meanings that fitted the steps before. Raises NoMeaning if none fits, or several with different divisors.
    """
    meanings = counts.meanings(n)
    left = {name: by for name, (size, by) in meanings.items() if size == n and (known is None or name in known)}
    if not left:
        raise NoMeaning("DT401", n=n, here=counts.own[0], all=counts.all_[0], batch=counts.nominal[0])
    if len(set(left.values())) > 1:
        raise NoMeaning("DT402", n=n, batches=counts.full[1] // counts.full[0], meanings=" or ".join(sorted(left)))
    return next(iter(left.values())), sorted(left)


def divisor_of_means(
    n: float, counts: Counts, known: Collection[str] | None, means: Collection[int]
) -> tuple[float, list[str], tuple[float, list[str]] | None]:
    """Like `divisor`, for losses that are means: a number in `means` is a divisor as it is, as in one process.

    The third value is the result of `divisor` if this share happens to have as many samples as there are means; None
    otherwise. Workers with other shares know which of the two is right.
    """
    as_it_is = n in means and (known is None or AS_IT_IS in known)
    try:
        by, left = divisor(n, counts, known)
    except NoMeaning:
        if as_it_is:
            return n, [AS_IT_IS], None
        raise
    if not as_it_is:
        return by, left, None
    return (by, [AS_IT_IS, *left], None) if by == n else (n, [AS_IT_IS], (by, left))
