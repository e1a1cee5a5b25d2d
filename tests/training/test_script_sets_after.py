"""What a script sets after `trainer.step()`, for the next step: where the step is void it goes back with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from idioms import mlp, train, weights
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

Sets = Callable[[Any, Any, int], object]  # told the net, its trainer, and how many steps there were


@mx.optimizer.register
class Betas(mx.optimizer.Optimizer):
    """Of somebody's own, with numbers in a tuple and in a list."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.betas, self.factors = (0.9, 0.5), [1.0, 1.0]

    def create_state(self, index: int, weight: Any) -> Any:
        return mx.nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self._update_count(index)
        state[:] = self.betas[0] * state + self.rescale_grad * grad
        weight[:] = weight - self._get_lr(index) * self.betas[1] * self.factors[0] * state


def trained(job: Any, sets: Sets, optimizer: str) -> list[Any]:
    net = mlp()
    options = {"learning_rate": 0.1, "lr_scheduler": mx.lr_scheduler.FactorScheduler(100, 0.9, base_lr=0.1)}
    trainer = job.trainer(net.collect_params(), optimizer, options)
    memory = job.memory(steps=0)

    def after(_: Any) -> None:
        memory.steps += 1
        sets(net, trainer, memory.steps)

    train(job, net, trainer, after=after)
    return weights(net)


def freezes(net: Any, _: Any, steps: int) -> None:
    net[0].collect_params().setattr("grad_req", "null" if steps % 4 == 2 else "write")


def another_scheduler(_: Any, trainer: Any, steps: int) -> None:
    if steps == 6:
        trainer._optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)


def a_tuple(_: Any, trainer: Any, steps: int) -> None:
    trainer._optimizer.betas = (0.5, 1.0) if steps % 4 == 2 else (0.9, 0.5)


def in_a_list(_: Any, trainer: Any, steps: int) -> None:
    trainer._optimizer.factors[0] = 0.1 if steps % 4 == 2 else 1.0


def other_states(_: Any, trainer: Any, steps: int) -> None:
    if steps % 4 == 2:
        for i, state in trainer._updaters[0].states.items():
            trainer._updaters[0].states[i] = mx.nd.zeros_like(state)


SETS = {
    "freezes": (freezes, "sgd"),
    "another scheduler": (another_scheduler, "sgd"),
    "a tuple": (a_tuple, "betas"),
    "in a list": (in_a_list, "betas"),
    "other states": (other_states, "betas"),
}


@pytest.mark.parametrize("moment", ["before", "late"])
@pytest.mark.parametrize(("sets", "optimizer"), SETS.values(), ids=SETS)
def test_t2_what_is_set_after_a_step_goes_back_where_the_step_is_void(sets: Sets, optimizer: str, moment: str) -> None:
    results = Conductor({0: 3, 5: 2}, [Death(5, 1, 0, moment)], 1).run(lambda job: trained(job, sets, optimizer))
    all_close(results, trained(Plain(), sets, optimizer))
