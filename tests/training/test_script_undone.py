"""What a script does beside its steps and must not do twice: a step that is void comes again, with all that stands
around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

DEATHS = {
    "in two steps": ({0: 3, 6: 2}, [Death(5, 1), Death(9, 0)], 2),
    "when all have their sums": ({0: 3}, [Death(5, 1, 0, "applied")], 2),
    "and one joins": ({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(6, 0)], 1),
}


class Decaying(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """A schedule that the script itself moves on, with a number one level deeper."""

    def __init__(self) -> None:
        super().__init__(base_lr=0.1)
        self.inner = mx.lr_scheduler.FactorScheduler(1000, base_lr=1.0)

    def __call__(self, num_update: int) -> float:
        return float(self.base_lr * self.inner.base_lr)


def shrink(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        p.set_data(p.data() * 0.97)


def in_place(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        p.data()[:] *= 0.97
        p.data()[:1] = p.data()[:1] + 0.01


def copied(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        (p.data() * 0.97).copyto(p.data())


def cools(net: Any, schedule: Decaying) -> None:
    schedule.base_lr *= 0.9
    schedule.inner.base_lr *= 0.9


def script(job: Any, change: Callable[[Any, Decaying], None], before: bool) -> list[Any]:
    net, schedule = mlp(), Decaying()
    trainer = job.trainer(net.collect_params(), "sgd", {"momentum": 0.9, "lr_scheduler": schedule})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            if before:
                change(net, schedule)
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            if not before:
                change(net, schedule)
    return weights(net)


@pytest.mark.parametrize("before", [True, False], ids=["before the step", "after it"])
@pytest.mark.parametrize("change", [shrink, in_place, copied, cools], ids=lambda change: change.__name__)
@pytest.mark.parametrize("deaths", list(DEATHS))
def test_t2_what_a_script_does_to_weights_and_schedules_it_does_once_a_step(
    deaths: str, change: Callable[[Any, Decaying], None], before: bool
) -> None:
    def elastic(job: Any) -> list[Any]:
        return script(job, change, before)

    all_close(Conductor(*DEATHS[deaths]).run(elastic), script(Plain(), change, before))


def clipped(job: Any) -> list[Any]:
    """Two networks, of which one's weights are clipped between their steps, as in a Wasserstein GAN."""
    net, other = mlp(), mlp(seed=4)
    trainers = [job.trainer(each.collect_params(), "adam", {"learning_rate": 0.02}) for each in (net, other)]
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            for each, trainer in zip((net, other), trainers, strict=True):
                with autograd.record():
                    loss = CROSS(net(x) + other(x), y)
                loss.backward()
                trainer.step(BATCH)
                for p in each.collect_params().values():
                    p.set_data(mx.nd.clip(p.data() * 1.05, -0.5, 0.5))
    return weights(net, other)


@pytest.mark.parametrize("moment", ["before", "applied", "late"])
@pytest.mark.parametrize("exchange", [0, 1])
def test_t2_what_stands_between_two_networks_steps_is_undone_in_its_order(exchange: int, moment: str) -> None:
    all_close(Conductor({0: 3}, [Death(5, 1, exchange, moment)], 2).run(clipped), clipped(Plain()))


def gathers(job: Any) -> list[Any]:
    """GluonNLP's finetune_classifier sets the gradients to zero where an epoch begins."""
    net = mlp()
    net.collect_params().setattr("grad_req", "add")
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        net.collect_params().zero_grad()
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y).mean()
            loss.backward()
            if (i + 1) % 2 == 0:
                trainer.allreduce_grads()
                trainer.update(1)
                net.collect_params().zero_grad()
    return weights(net)


@pytest.mark.parametrize("step", [1, 5, 9])
def test_t5_gradients_that_were_gathered_before_a_restart_outlive_what_the_script_does_where_an_epoch_begins(
    step: int,
) -> None:
    first = Conductor({0: 2, step: 3}, segment_steps=1)
    expected = gathers(Plain())
    all_close(first.run(gathers), expected)
    block = next(block for at, block in first.blocks.items() if at.step == step)
    all_close(Conductor({0: 2}, segment_steps=3, start=block).run(gathers), expected)


class Watching(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """GluonTS's: it is told a metric, and keeps the rate that follows from it beside `base_lr`."""

    def __init__(self) -> None:
        super().__init__(base_lr=0.1)
        self.current = 0.1

    def __call__(self, num_update: int) -> float:
        return self.current

    def tell(self, loss: float) -> None:
        self.current *= 0.5 if loss > 1 else 0.9


def test_rates_that_a_scheduler_keeps_to_itself_end_the_step_where_they_part() -> None:
    """It was told each worker's own loss: the rates part, and the weights at once."""

    def follows(job: Any) -> Any:
        net, schedule = mlp(), Watching()
        trainer = job.trainer(net.collect_params(), "sgd", {"lr_scheduler": schedule})
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(BATCH)
            schedule.tell(float(epoch.rank * 2))

    with pytest.raises(RuntimeError, match=r"what the scheduler keeps on 1 of 2 workers.*job\.memory"):
        Conductor({0: 2}).run(follows)
    assert follows(ElasticJob.join()) is None


def test_a_gradient_clipped_by_a_copy_into_it_is_refused_as_any_clip_of_a_share() -> None:
    job, net = ElasticJob.join(), mlp()
    job.trainer(net.collect_params(), "sgd")
    gradient = next(iter(net.collect_params().values())).grad()
    with pytest.raises(ValueError, match=r"are changed before trainer\.step"):  # noqa: PT012
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                gradient.clip(-1, 1).copyto(gradient)
