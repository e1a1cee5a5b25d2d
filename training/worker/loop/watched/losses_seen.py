"""Which losses the script has differentiated: what was tried in the first batch says nothing of one that comes later,
as a term that begins with an epoch, or the hardest samples after a warm-up.

To look at a loss takes as long as a few operators, so that is done where an epoch begins, and in the batch after one in
which the script has called more or fewer operators than ever before.
"""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.training.worker.loop.record.losses import Loss

MOST_COUNTS = 50  # with sequences of any length each batch may have another
Made = tuple[frozenset[str], int]  # of which operators, and of how many arrays beside the weights


class LossesSeen:
    """By this process, in one loop; how often an operator is there, as with each length of a sequence, is left out."""

    def __init__(self) -> None:
        self._known, self._settled = set[Made](), False
        self._counts = set[int]()
        self.another = False  # than in the first batch, and not tried

    def look(self, losses: Iterable[Loss]) -> None:
        found = {_made(each) for each in losses}
        self.another = self.another or (self._settled and not found <= self._known)
        self._known |= found

    def put_down(self, operators: int) -> bool:
        """The batch is at its end, in which the script has called so many. Whether the next one is to be looked at."""
        self._settled = bool(self._known)
        is_new = operators not in self._counts and len(self._counts) < MOST_COUNTS
        self._counts |= {operators} if is_new else set()
        return is_new


def _made(loss: Loss) -> Made:
    nodes, data = loss.graph.nodes, loss.graph.data
    return frozenset(node.op for node in nodes), sum(node.op == "null" and data[i] for i, node in enumerate(nodes))
