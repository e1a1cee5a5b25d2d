"""Fingerprints of the numbers that multiply the workers' losses, summed beside the gradients and then compared.

In one process `loss.sum() / len(x)` is as good as a division by the batch size. Here `len(x)` is a share's length, so
where shares differ in size, these numbers differ between workers. But a worker may also lack a term that others have.
Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

PLACES, MOST_TERMS, HALVINGS = 512, 64, 4
SIZES, LEVELS = PLACES, PLACES + MOST_TERMS  # offsets in a fingerprint
FINGERPRINT = LEVELS + HALVINGS  # length; an eighth of the places may be taken


def on_trial(step: int, begins: int | None) -> bool:
    """Whether the numbers are compared at this step: at a generation's first, and 1, 2, 4, ... steps after it.

    In the first, shares differ in size. The later ones are needed because a batch may have nothing to count.
    """
    return begins is not None and (step - begins) & (step - begins - 1) == 0


def place_of(factor: tuple[str, str], step: int) -> int:
    """Place of a factor in this step's fingerprints.

    Two factors may have the same place, which hides a difference between them; in the next step compared they have
    others.
    """
    # Not a checksum: factors that collide in one step would collide in all
    digest = hashlib.blake2b(repr((step, factor)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % PLACES


def fingerprint(factors: Collection[tuple[str, str]], step: int) -> list[float]:
    """What this worker adds to a sum: its factors in this step, (operator, number) of each term, as places, and how
    many.

    A factor of 0 is left out. Of too many factors, only those in the lower half of the places are included, or in a
    quarter, and so on.
    """
    votes = [0.0] * FINGERPRINT
    places, level = {place_of(each, step) for each in factors if float(each[1])}, 0
    while len(places) > MOST_TERMS:
        level += 1
        places = {place for place in places if place < PLACES >> level}
    for place in (*places, SIZES + len(places) - 1, LEVELS + level) if places else ():
        votes[place] = 1.0
    return votes


def fingerprints_agree(total: Sequence[float]) -> bool:
    """Whether the worker with the most terms has those of all others.

    A worker that lacks a term has no samples for it in its share. A worker with another number in its place has counted
    in its share. Workers that include different parts of the places are not compared.
    """
    places, sizes, levels = total[:SIZES], total[SIZES:LEVELS], total[LEVELS:]
    if sum(map(bool, levels)) > 1:
        return True
    return sum(map(bool, places)) <= max((size for size, vote in enumerate(sizes, 1) if vote), default=0)
