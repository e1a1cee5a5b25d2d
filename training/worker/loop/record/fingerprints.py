"""Fingerprints of the numbers that multiply the workers' losses, to compare these numbers on all workers. Pure.

In one process `loss.sum() / len(x)` is the same as a division by the batch size. In a job `len(x)` is the length of a
worker's share. So these numbers differ between workers whose shares differ in size. But a worker may also lack a term
of the loss that other workers have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

PLACES, MOST_TERMS, HALVINGS = 512, 64, 4  # places for factors, most factors, and halvings of the included places
SIZES, LEVELS = PLACES, PLACES + MOST_TERMS  # offsets in a fingerprint
FINGERPRINT = LEVELS + HALVINGS  # length of a fingerprint, in which at most an eighth of the places is used


def is_compared_step(step: int, first_step: int | None) -> bool:
    """Whether numbers are compared at this step: a generation's first step, and the steps 1, 2, 4, ... after it.

    In a generation's first step, the workers' shares differ in size. Numbers are also compared in later steps, because
    the first batch may have nothing that the script counts.
    """
    return first_step is not None and (step - first_step) & (step - first_step - 1) == 0


def place_of(factor: tuple[str, str], step: int) -> int:
    """Return the place of a factor in this step's fingerprints.

    A difference between two factors with the same place is not seen. In the next compared step these factors have
    different places.
    """
    # Not a checksum, with which two factors that collide in one step would collide in all steps
    digest = hashlib.blake2b(repr((step, factor)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % PLACES


def fingerprint(factors: Collection[tuple[str, str]], step: int) -> list[float]:
    """Return this worker's fingerprint for a step: the places of its factors, and the number of these places.

    A factor is (operator, number) of a term. Factors of 0 are left out. If there are too many factors, only the lower
    half of the places is included, or the lower quarter, and so on.
    """
    place_marks = [0.0] * FINGERPRINT
    places, level = {place_of(factor, step) for factor in factors if float(factor[1])}, 0
    while len(places) > MOST_TERMS:
        level += 1
        places = {place for place in places if place < PLACES >> level}
    for place in (*places, SIZES + len(places) - 1, LEVELS + level) if places else ():
        place_marks[place] = 1.0
    return place_marks


def fingerprints_agree(summed: Sequence[float]) -> bool:
    """Whether the worker with the most factors has the factors of all other workers.

    A worker that lacks a factor has no samples for that term in its share. A worker with a different factor instead has
    counted samples in its share. Workers that include different parts of the places are not compared.
    """
    places, sizes, levels = summed[:SIZES], summed[SIZES:LEVELS], summed[LEVELS:]
    if sum(map(bool, levels)) > 1:
        return True
    return sum(map(bool, places)) <= max(
        (size for size, worker_count in enumerate(sizes, 1) if worker_count), default=0
    )
