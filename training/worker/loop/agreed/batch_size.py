"""What the number in `trainer.step(n)` says. Pure.

In one process a script may pass the batch size that it was written with, or count the samples of the batch in hand; and
when it adds gradients up over several batches, either of one batch or of all. A worker's batch is only its share, so
the same expression gives another number there. Which of them the script means shows in the numbers: whatever fitted
every step so far and fits this one. Two meanings with different results, or none, are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

AS_IT_IS = "as it is"  # of means: one of them, or several that were added up


class NoMeaning(Exception):
    """A number in `trainer.step(n)` fits none, or two: the code of a rule, and values for its sentence."""

    def __init__(self, code: str, **values: object) -> None:
        super().__init__(code, values)
        self.code, self.values = code, values


@dataclass(frozen=True)
class Counts:
    """Of the batches since the last update. `nominal` is what the script was written with; `full` what it stands for
    over all workers, `per_worker` that it is a worker's; `own` is what this worker took (None: nobody knows, as it was
    not there all the time), `all_` what all workers took together. Last batch, all batches. `group`: batches that an
    update is meant to be of; an epoch's last may be of fewer.
    """

    nominal: tuple[int, int]
    full: tuple[int, int]
    own: tuple[int, int | None]
    all_: tuple[int, int]
    per_worker: bool = False
    group: int = 1

    def meanings(self, n: float) -> dict[str, tuple[int | None, int]]:
        """Meaning: (the number that says it here, what the summed gradients are divided by then). Where batches are
        added up `n` may be of so many of them, whether or not they are as many now: a script may count them anew in
        each epoch, and go on adding.
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
    """(what to divide the summed gradients by, the meanings that are left). `known`: those of the steps before."""
    meanings = counts.meanings(n)
    left = {name: by for name, (number, by) in meanings.items() if number == n and (known is None or name in known)}
    if not left:
        raise NoMeaning("DT401", n=n, here=counts.own[0], all=counts.all_[0], batch=counts.nominal[0])
    if len(set(left.values())) > 1:
        raise NoMeaning("DT402", n=n, batches=counts.full[1] // counts.full[0], meanings=" or ".join(sorted(left)))
    return next(iter(left.values())), sorted(left)


def divisor_of_means(
    n: float, counts: Counts, known: Collection[str] | None, means: Collection[int]
) -> tuple[float, list[str], tuple[float, list[str]] | None]:
    """As `divisor`, where a number of `means` is divided by as it is, in one process, too. Third: what `divisor` says,
    where a share happens to have as many samples as there are means. Others, whose shares have not, know which it is.
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
