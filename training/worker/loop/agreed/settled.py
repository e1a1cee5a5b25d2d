"""Sum gradients that accumulate across a boundary, so that the sums survive the loss of any worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.trainer import ElasticTrainer
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.training_state import TrainingState, gradient_key


def flush_accumulated(
    membership: Membership,
    state: TrainingState,
    trainers: Sequence[ElasticTrainer],
    position: Position,
    on_success: Callable[[], None],
) -> None:
    """Sum the accumulated gradients over all workers, and keep the sums in the state.

    `on_success` is called when all workers have the sums, but not if a worker was lost meanwhile.
    """
    owners = {id(p): x for x in trainers for p in x._params}
    keys, arrays = [], []
    for t, trainer in enumerate(trainers):
        for i, p in enumerate(trainer._params):
            if p.grad_req == "add" and owners[id(p)] is trainer:
                CurrentBatch.undo_scale(trainer, p, state)
                keys.append(gradient_key(t, i))
                arrays.append(p.list_grad())
    assert len(keys) == len(state.accumulated)

    def push() -> None:
        for key, gradients in zip(keys, arrays, strict=True):
            membership.kvstore.pushpull(key, gradients)

    def store() -> None:
        state.carried.carry()
        state.own["accumulated"] = {**state.own["accumulated"], "here": None, "weights": {}}
        on_success()

    if membership.exchange(keys, push, [gradients[0] for gradients in arrays]):
        membership.apply(position, store)
