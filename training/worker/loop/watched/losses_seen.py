"""Which losses the script has differentiated: what was tried in the first batch says nothing of one that comes later,
as a term that begins with an epoch, or the hardest samples after a warm-up.

To look at a loss takes as long as a few operators, so that is done where an epoch begins, and in the batch after one
that has called a number of operators which no batch before it had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dyntrain.training.worker.loop.record.losses import Loss

MOST_COUNTS = 50  # of operators in a batch: with sequences of any length each may have another
VARIES = 3  # numbers of arrays that the same operators had: it is one for each step of a sequence, or sample of a share


class LossesSeen:
    """By this process, in one loop: each by the operators that are in it, and how many arrays beside the weights."""

    def __init__(self) -> None:
        self._known, self._settled = defaultdict[frozenset[str], set[int]](set), False
        self._counts = set[int]()
        self.another = False  # than in the first batch, and not tried

    def look(self, losses: Iterable[Loss]) -> None:
        for each in losses:
            operators, arrays = _made(each)
            known = self._known[operators]
            if arrays not in known and len(known) < VARIES:
                known.add(arrays)
                self.another = self.another or self._settled

    def put_down(self, operators: int) -> bool:
        """The batch is at its end, in which the script has called so many. Whether the next one is to be looked at."""
        self._settled = bool(self._known)
        is_new = operators not in self._counts and len(self._counts) < MOST_COUNTS
        self._counts |= {operators} if is_new else set()
        return is_new


def _made(loss: Loss) -> tuple[frozenset[str], int]:
    nodes, data = loss.graph.nodes, loss.graph.data
    return frozenset(node.op for node in nodes), sum(node.op == "null" and data[i] for i, node in enumerate(nodes))
