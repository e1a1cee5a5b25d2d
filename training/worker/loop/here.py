"""The batch that this thread's script has in hand, for what the script calls without knowing of a job."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dyntrain.training.worker.loop.hand import Hand

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class _Here(threading.local):
    hand: Hand | None = None
    loop: TrainingLoop  # where there is a hand


here = _Here()


def hold(hand: Hand | None, loop: TrainingLoop | None = None) -> None:
    """From now on, on this thread. None: nothing is in hand."""
    here.hand = hand
    if loop is not None:
        here.loop = loop
