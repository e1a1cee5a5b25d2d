"""By which numbers the workers' losses are multiplied: said beside the gradients, and compared where they are summed.

In one process `loss.sum() / len(x)` is as good as a division by the batch size. Here `len(x)` is of a share, and where
shares differ in size the workers' numbers do. But a worker may also lack a term that others have. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

PLACES, MOST_TERMS, HALVINGS = 512, 64, 4
SIZES, LEVELS = PLACES, PLACES + MOST_TERMS  # where they begin
FINGERPRINT = LEVELS + HALVINGS  # numbers of one; an eighth of the places is not too many


def on_trial(step: int, begins: int | None) -> bool:
    """Whether the numbers are compared: in a generation's first step, in which shares differ in size, and in fewer and
    fewer after it, as a batch may have nothing to count.
    """
    return begins is not None and (step - begins) & (step - begins - 1) == 0


def place_of(factor: tuple[str, str], step: int) -> int:
    """Two of them may have one place: then it is not seen where they differ, and is in the next step that is looked at,
    in which they have others.
    """
    # No checksum: what is alike in one step would be in all of them
    digest = hashlib.blake2b(repr((step, factor)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % PLACES


def fingerprint(factors: Collection[tuple[str, str]], step: int) -> list[float]:
    """What this worker adds to a sum to say by which numbers its losses are multiplied in this step: (operator, number)
    of their terms, each as a place, and how many. What is multiplied by 0 is nothing. Of too many those in the lower
    half of the places are told, or in a quarter.
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
    """Whether the worker with most terms has those of all others. Who lacks one has nothing to train it on in its
    share; who has another number in its place has counted in it. Workers that tell of other halves are not compared.
    """
    places, sizes, levels = total[:SIZES], total[SIZES:LEVELS], total[LEVELS:]
    if sum(map(bool, levels)) > 1:
        return True
    return sum(map(bool, places)) <= max((size for size, vote in enumerate(sizes, 1) if vote), default=0)
