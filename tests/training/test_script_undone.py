"""What a script does beside its steps and must not do twice: a step that is void comes again, with all that stands
around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.undone.voids import VoidSteps
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, dcgan, mlp, train, weights
from matrices import pairwise
from mxnet import autograd, gluon
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


def by_out(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        mx.nd.clip(p.data(), -0.3, 0.3, out=p.data())
        mx.nd.sgd_update(p.data(), p.data(), lr=0.03, wd=0, out=p.data())


def a_part(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        p.data()[:1] *= 0.9


def multipliers(net: Any, schedule: Decaying) -> None:
    for p in net.collect_params().values():
        p.lr_mult *= 0.9
        p.wd_mult *= np.float32(0.5)


def cools(net: Any, schedule: Decaying) -> None:
    schedule.base_lr *= 0.9
    schedule.inner.base_lr *= 0.9


def script(job: Any, change: Callable[[Any, Decaying], None], before: bool) -> list[Any]:
    net, schedule = mlp(), Decaying()
    trainer = job.trainer(net.collect_params(), "sgd", {"momentum": 0.9, "wd": 0.01, "lr_scheduler": schedule})
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


@pytest.mark.parametrize(
    ("deaths", "change", "before"),
    pairwise(DEATHS, [shrink, in_place, copied, by_out, a_part, multipliers, cools], [True, False]),
)
def test_t2_what_a_script_does_to_weights_and_schedules_it_does_once_a_step(
    deaths: str, change: Callable[[Any, Decaying], None], before: bool
) -> None:
    def elastic(job: Any) -> list[Any]:
        return script(job, change, before)

    all_close(Conductor(*DEATHS[deaths]).run(elastic), script(Plain(), change, before))


def beside(job: Any) -> list[Any]:
    """The optimizer's own numbers: a rate of NumPy's, its table of multipliers, momentum that is damped."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": np.float32(0.1), "momentum": 0.9})
    optimizer = trainer._optimizer
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            optimizer.lr *= np.float32(0.9)
            optimizer.set_lr_mult({0: 0.5 * optimizer.lr_mult.get(0, 1.0)})
            for state in trainer._updaters[0].states.values():
                state *= 0.7
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.parametrize("deaths", list(DEATHS))
def test_t2_what_a_script_does_to_its_optimizer_it_does_once_a_step(deaths: str) -> None:
    all_close(Conductor(*DEATHS[deaths]).run(beside), beside(Plain()))


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


def leaves_over(job: Any) -> list[Any]:
    """Four batches, updates of three: what is left at an epoch's end is thrown away where the next one begins."""
    net = mlp()
    net.collect_params().setattr("grad_req", "add")
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        net.collect_params().zero_grad()
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if i % 3 == 2:
                trainer.step(3 * BATCH)
                net.collect_params().zero_grad()
    return weights(net)


@pytest.mark.parametrize("after", [2, 3], ids=["two-go-on", "one-comes-in-its-place"])
@pytest.mark.parametrize(("step", "segment"), [(4, 1), (4, None), (6, None), (8, 2)])
def test_t5_gradients_that_a_script_threw_away_do_not_come_back_with_a_loss(
    step: int, segment: int | None, after: int
) -> None:
    conductor = Conductor({0: 3, step: after}, [Death(step, 1)], segment)
    all_close(conductor.run(leaves_over), leaves_over(Plain()))


def looks_at_the_norm(job: Any) -> list[Any]:
    """Mixed precision's own way: no update by what is no number. What zeros were summed up for may be that."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.allreduce_grads()
            if all(np.isfinite(p.grad().norm().asscalar()) for p in net.collect_params().values()):
                trainer.update(BATCH)
    return weights(net)


def test_t5_survivors_that_do_not_update_by_a_void_sum_go_on() -> None:
    all_close(Conductor({0: 3}, [Death(5, 1)], 2).run(looks_at_the_norm), looks_at_the_norm(Plain()))


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
        train(job, net, trainer, ends=lambda epoch: schedule.tell(float(epoch.rank * 2)))

    with pytest.raises(RuntimeError, match=r"what the scheduler keeps on 1 of 2 workers.*job\.memory"):
        Conductor({0: 2}).run(follows)
    assert follows(ElasticJob.join()) is None


def copies(net: Any, gradient: Any) -> None:
    gradient.clip(-0.01, 0.01).copyto(gradient)


def asks_the_weight(net: Any, gradient: Any) -> None:
    for p in net.collect_params().values():
        p.data().grad[:] = p.data().grad.clip(-0.01, 0.01)


@pytest.mark.parametrize("clip", [copies, asks_the_weight], ids=lambda clip: clip.__name__)
def test_a_clip_of_a_share_is_refused_however_the_gradient_is_come_by(clip: Callable[[Any, Any], None]) -> None:
    job, net = ElasticJob.join(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd")
    gradient = next(iter(net.collect_params().values())).grad()
    with pytest.raises(ValueError, match="DT301"):  # noqa: PT012
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                clip(net, gradient)
                trainer.step(BATCH)


def shares_a_layer(job: Any) -> list[Any]:
    """Two heads on one encoder, each with a trainer of both; gradients are clipped between sum and update."""
    encoder, heads = mlp(5), [mlp(3, 5, seed=2), mlp(3, 5, seed=3)]
    trainers = [
        job.trainer(
            [*encoder.collect_params().values(), *head.collect_params().values()], "sgd", {"learning_rate": 0.1}
        )
        for head in heads
    ]
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            for head, trainer in zip(heads, trainers, strict=True):
                with autograd.record():
                    loss = CROSS(head(encoder(x)), y)
                loss.backward()
                trainer.allreduce_grads()
                gluon.utils.clip_global_norm([p.grad() for p in trainer._params], 1.0)
                trainer.update(BATCH)
    return weights(encoder, *heads)


@pytest.mark.parametrize("deaths", list(DEATHS))
def test_t2_a_layer_of_two_trainers_may_be_clipped_where_either_has_its_sums(deaths: str) -> None:
    all_close(Conductor(*DEATHS[deaths]).run(shares_a_layer), shares_a_layer(Plain()))


def test_workers_of_which_each_steps_another_trainer_do_not_wait_for_each_other_for_ever() -> None:
    """A GAN whose critic is stepped where its loss on the share is large: all are released, and come there again. Where
    workers are lost instead, others are there, or another step.
    """
    voids = VoidSteps()
    for step, workers in [(5, 3), (5, 3), (5, 2), (6, 2), (6, 2)]:
        voids.refuse(step, workers)
        voids.add(step, workers)
    voids.refuse(6, 2)
    voids.add(6, 2)
    voids.refuse(7, 2)
    with pytest.raises(RuntimeError, match=r"step 6 was void 3 times.*epoch\.sum"):
        voids.refuse(6, 2)


def test_of_several_trainers_it_is_said_in_whose_sum_a_step_is_void(caplog: pytest.LogCaptureFixture) -> None:
    """Workers that wait for each other, as each steps another one, would else be seen to stand still, and no more."""
    assert Conductor({0: 2}, [Death(5, 1, 1)], 1).run(dcgan)
    messages = {record.getMessage().split(":")[0] for record in caplog.records}
    assert "step 5 is void in the sum of trainer 1 of 2" in messages, "the generator's, which the script made first"
