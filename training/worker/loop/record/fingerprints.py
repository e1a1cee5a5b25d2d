"""Fingerprints of the numbers that multiply the workers' losses, to compare these numbers on all workers. Pure.

In one process `loss.sum() / len(x)` is the same as a division by the batch size. In a job, `len(x)` is the length of a
worker's share, so `loss.sum() / len(x)` has different divisors on workers whose shares differ in size. A worker may
also lack a whole term of the loss, which is no mistake of the script.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

PLACES, MOST_TERMS, HALVINGS = 512, 64, 4  # places for factors, most factors, and halvings of the included places
SIZES, LEVELS = PLACES, PLACES + MOST_TERMS  # offsets in a fingerprint
FINGERPRINT_SIZE = LEVELS + HALVINGS  # at most an eighth of the places is used


def is_compared_step(step: int, first_step: int | None) -> bool:
    """Whether the workers compare fingerprints at this step: at a generation's first step, and 1, 2, 4, ... steps
    later.

    In a generation's first step, the workers' shares differ in size. Fingerprints are also compared in later steps,
    because a generation's first batch may lack whatever the script counts.
    """
    return first_step is not None and (step - first_step) & (step - first_step - 1) == 0


def place_of(factor: tuple[str, str], step: int) -> int:
    """Return the index at which this step's fingerprint has a 1 for the factor.

    Two different factors may have the same place in one step, so that their difference is not seen. Places depend on
    the step, so two factors with the same place in one step have different places in the next compared step.
    """
    # Not a checksum, with which two factors that collide in one step would collide in all steps
    digest = hashlib.blake2b(repr((step, factor)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % PLACES


def fingerprint(factors: Collection[tuple[str, str]], step: int) -> list[float]:
    """Return this worker's fingerprint for a step, which marks the places of its factors and the number of those
    places.

    A factor is a pair: the first operator of a loss's term, and the number that multiplies the term. Factors of 0 are
    left out. If the factors have more than MOST_TERMS places, only factors in the lower half of all places are
    included, or in the lower quarter, and so on.
    """
    place_marks = [0.0] * FINGERPRINT_SIZE
    places, halvings = {place_of(factor, step) for factor in factors if float(factor[1])}, 0
    while len(places) > MOST_TERMS:
        halvings += 1
        places = {place for place in places if place < PLACES >> halvings}
    for place in (*places, SIZES + len(places) - 1, LEVELS + halvings) if places else ():
        place_marks[place] = 1.0
    return place_marks


def fingerprints_agree(summed: Sequence[float]) -> bool:
    """Whether the worker with the most factors has all factors that any other worker has.

    A worker that only lacks a factor has no samples for that term of the loss in its share. A worker with a different
    factor has counted the samples in its share, which is a mistake. The result is True if workers include different
    parts of all places, because their factors cannot be compared.
    """
    places, sizes, levels = summed[:SIZES], summed[SIZES:LEVELS], summed[LEVELS:]
    if sum(map(bool, levels)) > 1:
        return True
    return sum(map(bool, places)) <= max(
        (size for size, worker_count in enumerate(sizes, 1) if worker_count), default=0
    )
