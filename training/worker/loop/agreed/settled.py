"""Sum accumulated gradients over all workers before a worker may leave, so that no gradients are lost with a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch
from dyntrain.training.worker.loop.trainer import ElasticTrainer
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.training_state import TrainingState, gradient_key


def sum_accumulated_gradients(
    membership: Membership,
    state: TrainingState,
    trainers: Sequence[ElasticTrainer],
    position: Position,
    on_success: Callable[[], None],
) -> None:
    """Sum the accumulated gradients over all workers, and keep the sums in the training state.

    `on_success` is called when all workers have the sums, but is not called if a worker was lost meanwhile.
    """
    owner_by_param = {id(param): owner for owner in trainers for param in owner._params}
    gradient_keys, gradient_lists = [], []
    for trainer_number, trainer in enumerate(trainers):
        for index, param in enumerate(trainer._params):
            if param.grad_req == "add" and owner_by_param[id(param)] is trainer:
                CurrentBatch.undo_scale(trainer, param, state)
                gradient_keys.append(gradient_key(trainer_number, index))
                gradient_lists.append(param.list_grad())
    assert len(gradient_keys) == len(state.accumulated)

    def push_gradients() -> None:
        for sum_key, gradients in zip(gradient_keys, gradient_lists, strict=True):
            membership.kvstore.pushpull(sum_key, gradients)

    def store_sums() -> None:
        state.carried.carry()
        state.own["accumulated"] = {**state.own["accumulated"], "here": None, "weights": {}}
        on_success()

    if membership.exchange(gradient_keys, push_gradients, [gradients[0] for gradients in gradient_lists]):
        membership.apply(position, store_sums)
