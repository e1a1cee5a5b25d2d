"""What a forward pass moves and the job does not know of, as a BatchNorm's running means in a net of which a trainer
has the head alone: each worker would have its own, and whoever joins those of the script's beginning.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd, gluon  # isort: skip
from dyntrain.training.worker.loop.batch.hand import Hand
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.state.training_state import TrainingState, differentiable


def _remembered(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def remembers(self: Any, *args: Any, **said: Any) -> Any:
        hand = here.hand
        if hand is not None and hand.is_first and here.in_block == 0 and autograd.is_training():
            for param in self.collect_params().values():
                if not differentiable(param) and param._data is not None and param not in hand.auxiliary:
                    hand.auxiliary[param] = param.list_data()[0].copy()
        made = call(self, *args, **said)
        if hand is not None and here.in_block == 0 and autograd.is_recording():
            here.loop.made_anew.called(self)  # by now it has all of its weights
        return made

    return remembers


def look_for_strays(hand: Hand, state: TrainingState) -> None:
    """In a loop's first batch, before anything is summed."""
    known = set(state.parameters)
    for param, before in hand.auxiliary.items():
        if param not in known and before.asnumpy().tobytes() != param.list_data()[0].asnumpy().tobytes():
            hand.refused |= here.loop.findings.find("DT508", name=param.name) is not None
    hand.auxiliary.clear()


gluon.Block.__call__ = _remembered(gluon.Block.__call__)
