"""A script that sets its rate from variables of its own: a worker that joins has other ones, and the weights would part
from its first step on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import idioms
import numpy as np
import pytest
from conducted import Conductor, Death
from dyntrain.training import events, journal
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START, ScriptFailed
from dyntrain.training.session.orders import Journal
from dyntrain.training.worker.loop.agreed.rates import UnequalRates, tags_of
from dyntrain.training.worker.refused import Unrecoverable
from hypothesis import given
from hypothesis import strategies as st
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, train, weights
from job_bed import JobBed
from mxnet import autograd
from session_driver import A, B, Driver, announced

import mxnet as mx  # isort: skip

JOINS = {0: 2, 4: 3}


class Scaler:
    """As far as a Trainer knows AMP's."""

    loss_scale = 1.0

    def has_overflow(self, params: Any) -> bool:
        return False


def trained(job: Any, begins: Callable[[Any, int], object], **options: Any) -> list[Any]:
    """`begins` is called with the trainer and how many batches this process has seen."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9, "wd": 0.01})
    trainer._amp_loss_scaler, trainer._amp_original_scale = Scaler(), 1.0
    seen = 0
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, **options):
        for x, y in epoch.batches(data()):
            begins(trainer, seen)
            seen += 1
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            before = weights(net)
            try:
                trainer.step(BATCH)
            except UnequalRates:
                assert all(np.array_equal(one, other) for one, other in zip(before, weights(net), strict=True))
                raise
    return weights(net)


def decays(trainer: Any, seen: int) -> None:
    trainer.set_learning_rate(0.5 if seen < 4 else 0.125)


def weighs(trainer: Any, seen: int) -> None:
    trainer._optimizer.wd = 0.01 * (seen + 1)


def gathers_speed(trainer: Any, seen: int) -> None:
    trainer._optimizer.momentum = min(0.9, 0.5 + 0.1 * seen)


def slows_layers(trainer: Any, seen: int) -> None:
    for param in trainer._params[: seen // 4]:
        param.lr_mult = 0.1


def changes_optimizer(trainer: Any, seen: int) -> None:
    trainer._init_optimizer("sgd" if seen < 4 else "nag", {"learning_rate": 0.5, "momentum": 0.9, "wd": 0.01})


class Steady(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]  # mxnet has no types
    def __call__(self, num_update: int) -> float:
        return float(self.base_lr)


class Falling(Steady):
    def __call__(self, num_update: int) -> float:
        return float(self.base_lr * 0.9**num_update)


def changes_course(trainer: Any, seen: int) -> None:
    trainer._optimizer.lr_scheduler = (Steady if seen < 4 else Falling)(base_lr=0.5)


def scales(trainer: Any, seen: int) -> None:
    trainer._amp_loss_scaler.loss_scale = 2.0**seen


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        pytest.param(decays, "learning_rate is 0.125 on worker 0, and 0.5 on 1 of 3 workers", id="rate"),
        pytest.param(weighs, "wd is 0.05 on worker 0, and 0.01 on 1 of 3 workers", id="decay"),
        pytest.param(gathers_speed, "momentum is 0.9 on worker 0, and 0.5 on 1 of 3 workers", id="momentum"),
        pytest.param(slows_layers, "lr_mult or wd_mult on 1 of 3 workers", id="multipliers"),
        pytest.param(changes_optimizer, "the optimizer's kind on 1 of 3 workers", id="optimizer"),
        pytest.param(changes_course, "what the scheduler keeps on 1 of 3 workers", id="scheduler"),
        pytest.param(scales, "loss scale is 16 on worker 0, and 1 on 1 of 3 workers", id="scale"),
    ],
)
def test_what_differs_on_a_worker_that_joins_ends_the_job_before_its_first_step(
    begins: Callable[[Any, int], None], says: str
) -> None:
    conductor = Conductor(JOINS, segment_steps=1)
    with pytest.raises(UnequalRates) as caught:
        conductor.run(lambda job: trained(job, begins))
    assert f"would differ: {says}: keep" in str(caught.value)
    assert "job.memory" in str(caught.value)
    assert isinstance(caught.value, Unrecoverable)
    assert {str(error) for error in conductor.errors} == {str(caught.value)}, "the same words on every worker"


def test_what_follows_from_the_jobs_memory_or_its_step_trains_on() -> None:
    def script(job: Any) -> list[Any]:
        memory = job.memory(seen=0)

        def begins(trainer: Any, _: int) -> None:
            decays(trainer, memory.seen)
            memory.seen += 1

        return trained(job, begins)

    expected = trained(ElasticJob.join(), decays)
    results = Conductor(JOINS, [Death(6, 1)], segment_steps=1).run(script)
    assert results
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("exchange", [1, 2, 3])
def test_a_worker_lost_while_it_is_told_what_differs_does_not_hide_it(exchange: int) -> None:
    conductor = Conductor(JOINS, [Death(4, 1, exchange)], segment_steps=1)
    with pytest.raises(UnequalRates, match=r"job\.memory"):
        conductor.run(lambda job: trained(job, decays))


def test_numpys_number_is_the_plain_one_that_a_joiner_gets_with_the_state() -> None:
    """Set where the job begins: those that join later have it from the others."""

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

        def begins(epoch: Any) -> None:
            if epoch == 0:
                trainer.set_learning_rate(np.float32(0.3))
                trainer._params[0].lr_mult = np.float32(0.5)

        train(job, net, trainer, begins=begins)

    assert len(Conductor({0: 2, 5: 3}, segment_steps=1).run(script)) == 3


def test_a_number_that_is_not_the_same_everywhere_is_told_with_what_to_pass() -> None:
    """With loss="own" any number goes: a worker's own words would scale its update alone."""

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, loss="own")
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(10 + epoch.rank)

    with pytest.raises(
        UnequalRates, match=r"DT411: .*divides by is 10 on worker 0, and 11 on 1 of 2 workers.*epoch\.sum"
    ):
        Conductor({0: 2}).run(script)


def test_of_several_trainers_it_says_which() -> None:
    def script(job: Any) -> None:
        nets = [mlp(seed=1), mlp(seed=2)]
        trainers = [job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}) for net in nets]
        seen = 0
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                trainers[1].set_learning_rate(0.1 / (1 + seen))
                seen += 1
                for net, trainer in zip(nets, trainers, strict=True):
                    with autograd.record():
                        loss = CROSS(net(x), y)
                    loss.backward()
                    trainer.step(BATCH)

    with pytest.raises(UnequalRates, match=r"DT413: .*learning_rate is 0.02.*\(trainer 1\)"):
        Conductor(JOINS, segment_steps=1).run(script)


values = st.dictionaries(st.sampled_from(["learning_rate", "wd"]), st.floats(0.001, 1.0), min_size=2)


@given(st.lists(values, min_size=2, max_size=5), st.integers(0, 10**7))
def test_every_worker_sees_it_when_not_all_are_the_same(every: list[dict[str, float]], step: int) -> None:
    """One that saw nothing would wait for the others, who have stopped. And what is the same is never refused."""
    each = [tags_of(step, one) for one in every]
    total = [sum(column) for column in zip(*each, strict=True)]
    alike = [total == [len(each) * tag for tag in mine] for mine in each]
    assert set(alike) == {len({tuple(mine) for mine in each}) == 1}
    assert all(alike) or len({str(sorted(one.items())) for one in every}) > 1


def test_rates_that_look_alike_at_one_step_do_not_for_long() -> None:
    one = {"learning_rate": 0.1}
    other = next(
        rates
        for rates in ({"learning_rate": 0.1 + number / 1000} for number in range(1, 1_000_000))
        if tags_of(0, rates) == tags_of(0, one)
    )
    assert sum(tags_of(step, one) == tags_of(step, other) for step in range(1000)) < 10


def test_t7_what_no_other_try_can_help_ends_the_job_at_once(driver: Driver) -> None:
    """Started again, all workers would have the same variables, and the schedule would begin anew without a word."""
    failure = ScriptFailed(generation=1, position=START, error="E: rates", traceback="E: rates\n", past_help=True)
    for name in (A, B):
        driver.do("script_failed", name, failure)
    (failed,) = announced(driver.orders, events.Failed)
    assert failed.reason == "the script cannot go on: E: rates"
    entries = [order.entry for order in driver.orders if isinstance(order, Journal)]
    assert sum(isinstance(entry, journal.JobFailed) for entry in entries) == 1


@pytest.mark.jobs
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("local_decay", "learning_rate is 0.1"),
        ("local_freezing", "which parameters train (grad_req) on 1 of 3 workers"),
    ],
)
def test_t7_a_joiner_with_another_rate_ends_a_real_job_with_the_reason_and_leaves_its_commit(
    tmp_path: Path, name: str, says: str
) -> None:
    """Or with other layers frozen: it would wait for sums that nobody else makes."""
    script = Path(idioms.__file__).with_name("mortal_idiom.py")
    command = [sys.executable, str(script), name, "0", "99", str(tmp_path)]
    bed = JobBed(tmp_path, command, workers=2)
    try:
        for letter in "ABC":
            bed.add_node(letter, base=letter != "C")
        bed.want("AB")
        bed.wait_for_epoch(1)
        bed.want("ABC")
        bed.wait_for(lambda: bed.events("failed"), 90, "the job ends")
    finally:
        bed.close()
    (failed,) = bed.events("failed")
    assert says in failed["reason"]
    assert "on 1 of 3 workers" in failed["reason"]
    assert bed.events("restart") == []
