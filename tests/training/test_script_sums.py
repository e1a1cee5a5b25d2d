"""What workers sum up within a batch: a script that divides by the words of its share, or by NaN because somebody was
lost, would train on other weights than one process, or end the job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.membership.step import STEPS_PER_MEASUREMENT, StepGuard
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, data, labels, mlp, numbers, weights
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

PER_EPOCH = -(-SAMPLES // BATCH)
LAST = SAMPLES - (PER_EPOCH - 1) * BATCH


def trained(job: Any, divisor: Any, **options: Any) -> list[Any]:
    """`divisor` gives what each step divides by."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, loss=options.pop("loss", "sum"))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, **options):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(divisor(epoch, x))
    return weights(net)


def steps(epoch_sizes: list[int]) -> list[float]:
    return [float(size) for _ in range(EPOCHS) for size in epoch_sizes]


WHOLE = steps([BATCH] * (PER_EPOCH - 1) + [LAST])


@pytest.mark.parametrize("segment", [1, None])
def test_a_sum_is_of_the_whole_batch_on_every_worker_whenever_it_joined(segment: int | None) -> None:
    """Also in the first batch of one that joins in mid-epoch, and on one that has no sample of a short batch."""

    def script(job: Any) -> Any:
        sums: list[float] = []

        def samples(epoch: Any, x: Any) -> Any:
            sums.append(epoch.sum(len(x)))
            return sums[-1]

        trained(job, samples)
        return sums

    for plan in ({0: 1, 2: 3, 9: 2}, {0: LAST + 2}):
        for result in Conductor(plan, segment_steps=segment).run(script):
            assert result == WHOLE[len(WHOLE) - len(result) :]
    assert script(ElasticJob.join()) == WHOLE


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(Death(5, 1, 0), id="before-the-sum"),
        pytest.param(Death(5, 1, 0, "applied"), id="after-the-sum"),
        pytest.param(Death(5, 1, 1), id="before-the-gradients"),
        pytest.param(Death(PER_EPOCH, 1, 0), id="in-an-epochs-first-sum"),
    ],
)
@pytest.mark.parametrize("loss", ["sum", "own"])
def test_a_loss_around_a_sum_costs_the_step_and_nothing_else(death: Death, loss: str) -> None:
    """`reduce` is no number then: the survivors must come to know that the step is void before they refuse it."""

    def script(job: Any) -> Any:
        def words(epoch: Any, x: Any) -> Any:
            return epoch.sum(len(x)) if loss == "sum" else epoch.reduce("words", len(x))

        return trained(job, words, loss=loss)

    expected = trained(ElasticJob.join(), lambda epoch, x: len(x))
    conductor = Conductor({0: 3, death.step: 2}, [death], 2)
    results = conductor.run(script)
    assert len(results) == 2
    assert not conductor.errors
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            assert mine == pytest.approx(theirs, abs=2e-5)


def test_what_is_counted_from_sums_is_a_number_always_and_counted_once() -> None:
    def script(job: Any) -> Any:
        memory = job.memory(samples=0.0)

        def counted(epoch: Any, x: Any) -> Any:
            total = epoch.sum(len(x))
            memory.samples += int(total)  # which NaN has not
            return total

        trained(job, counted)
        return memory.samples

    deaths = [Death(4, 1, 0), Death(6, 0, 1), Death(9, 1, 0, "applied")]
    assert set(Conductor({0: 3}, deaths, 1).run(script)) == {float(EPOCHS * SAMPLES)}


def sums_of_two(job: Any) -> list[Any]:
    """Two nets and trainers, whose losses are plain sums."""
    nets = [mlp(), mlp(outputs=2)]
    trainers = [job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, loss="own") for net in nets]
    for epoch in job.epochs(4, samples=SAMPLES, global_batch=BATCH):
        for x, _ in epoch.batches(data()):
            for net, trainer in zip(nets, trainers, strict=True):
                with autograd.record():
                    loss = net(x).square().sum()
                loss.backward()
                trainer.step(1)
    return [*weights(nets[0]), *weights(nets[1])]


def test_t2_sums_that_a_joiner_saw_in_a_void_step_alone_are_sums() -> None:
    """It had one sample in its first step, in which that does not show; then a worker is lost in the second's sum."""
    expected = sums_of_two(Plain())
    for exchange in (0, 1):
        all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1, exchange)], 1).run(sums_of_two), expected)


def positives(x: Any) -> int:
    """Of which some batches have none."""
    return int((x[:, 0] > 1.2).sum().asscalar())


@pytest.mark.parametrize(
    "divisor",
    [
        pytest.param(lambda epoch, x: max(1, epoch.sum(positives(x))), id="at-least-1"),
        pytest.param(lambda epoch, x: max(epoch.sum(positives(x)), 0.5), id="at-least-a-little"),
        pytest.param(lambda epoch, x: epoch.sum(positives(x)) * BATCH + 0.5, id="times-what-step-was-told"),
        pytest.param(lambda epoch, x: 4 + int(2 * epoch.sum(len(x))), id="whole"),
    ],
)
def test_t2_what_a_script_makes_of_a_sum_is_divided_by_as_it_is(divisor: Any) -> None:
    expected = trained(Plain(), divisor)
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: trained(job, divisor)), expected)
    all_close(Conductor({0: LAST + 2}).run(lambda job: trained(job, divisor, loss="own")), expected)


def test_a_1_that_may_be_a_sample_or_made_of_a_sum_is_refused() -> None:
    def divisor(epoch: Any, x: Any) -> float:
        return max(1, epoch.sum(0))

    with pytest.raises(ValueError, match=r"DT404: .*loss='own'"):
        Conductor({0: BATCH + 1}).run(lambda job: trained(job, divisor))


def test_t2_a_number_may_be_in_an_array() -> None:
    """As GluonNLP's mixed-precision trainer has it."""
    expected = trained(Plain(), lambda epoch, x: len(x))
    results = Conductor({0: 3}).run(lambda job: trained(job, lambda epoch, x: mx.nd.array([epoch.sum(len(x))])))
    all_close(results, expected)


def test_t2_what_is_counted_as_an_array_is_summed_reduced_and_recorded() -> None:
    """As Gluon's scripts count."""
    reduced = []

    def script(job: Any) -> list[Any]:
        def counted(epoch: Any, x: Any) -> Any:
            samples = (x == x).sum() / 4
            epoch.record("samples", samples, mx.nd.array([1.0]))
            reduced.append(epoch.reduce("samples", samples, mx.nd.array([1.0])))
            return epoch.sum(samples)

        return trained(job, counted)

    all_close(Conductor({0: 3}).run(script), trained(Plain(), lambda epoch, x: len(x)))
    assert sorted(reduced) == pytest.approx(sorted(3 * [size / 3 for size in WHOLE]))


def test_a_number_that_differs_between_workers_is_no_sum_though_one_was_asked_for() -> None:
    def divisor(epoch: Any, x: Any) -> float:
        return 40 + positives(x) + 0 * epoch.sum(1)

    with pytest.raises(RuntimeError, match=r"DT411: .*what step\(n\) divides by"):
        Conductor({0: 3}).run(lambda job: trained(job, divisor))


@pytest.mark.parametrize(
    "divisor",
    [
        pytest.param(lambda epoch, x: epoch.sum(len(x) if epoch.rank == 1 else 0), id="nothing-of-ones-own"),
        pytest.param(lambda epoch, x: int(epoch.sum(len(x))), id="a-number-made-of-it"),
        pytest.param(lambda epoch, x: len(x) if 1 / epoch.sum(0 if epoch.rank else len(x)) else 1, id="divided-by"),
    ],
)
def test_survivors_of_a_loss_in_the_sum_do_not_refuse_what_came_of_it(divisor: Any) -> None:
    """All of them would end, and people look for a fault of their script."""
    results = Conductor({0: 3}, [Death(5, 1, 0)], 2).run(lambda job: trained(job, divisor))
    assert len(results) == 3


def test_words_of_several_batches_are_counted_in_memory_and_not_by_the_script() -> None:
    def script(job: Any, counts_itself: bool = False) -> list[Any]:
        memory = job.memory(samples=0.0)
        net, samples = mlp(), 0
        net.collect_params().setattr("grad_req", "add")
        trainer = job.trainer(
            net.collect_params(), "sgd", {"learning_rate": 0.1}, loss="sum" if counts_itself else "own"
        )
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for i, (x, y) in epoch.enumerate(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                samples += len(x)
                memory.samples += epoch.sum(len(x)) if not counts_itself else 0
                if i % 2:
                    trainer.step(epoch.sum(samples) if counts_itself else memory.samples)
                    memory.samples, samples = 0.0, 0
                    net.collect_params().zero_grad()
        return weights(net)

    with pytest.raises(ValueError, match=r"DT403: .*memory\.n \+="):
        script(ElasticJob.join(), counts_itself=True)
    expected = script(ElasticJob.join())
    for death in (Death(6, 1, 0), Death(7, 0, 0), Death(7, 1, 1)):
        for result in Conductor({0: 3, death.step: 2}, [death], 1).run(script):
            for mine, theirs in zip(result, expected, strict=True):
                assert mine == pytest.approx(theirs, abs=2e-5)


def test_a_sum_after_the_step_is_refused_as_a_loss_in_it_could_not_undo_the_step() -> None:
    """Survivors would have different numbers then, and some of them would count."""

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(len(x))
                epoch.sum(len(x))

    with pytest.raises(RuntimeError, match=r"after trainer\.step"):
        Conductor({0: 2}).run(script)


@pytest.mark.parametrize(
    ("divisor", "loss", "says"),
    [
        (lambda epoch, x: epoch.sum(0), "sum", "above 0"),
        (lambda epoch, x: epoch.sum(math.nan), "sum", "above 0"),
        (lambda epoch, x: math.nan, "own", "above 0"),
        (lambda epoch, x: epoch.sum(len(x)), "mean", "a number for each sample"),
    ],
    ids=["nothing", "no-number", "no-number-though-nobody-is-lost", "of-a-mean"],
)
def test_a_sum_that_nothing_can_be_divided_by_is_refused_before_the_step(divisor: Any, loss: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trained(ElasticJob.join(), divisor, loss=loss)


def test_a_sum_outside_of_the_batches_or_of_parts_says_what_to_do() -> None:
    job = ElasticJob.join()
    trainer = job.trainer(mlp().collect_params(), "sgd")
    assert trainer is not None
    epoch = next(job.epochs(1, samples=SAMPLES, global_batch=BATCH))
    with pytest.raises(RuntimeError, match=r"epoch\.reduce\(name, value\)"):
        epoch.sum(1)
    with pytest.raises(RuntimeError, match="local_batch_at_most"):
        trained(ElasticJob.join(), lambda epoch, x: epoch.sum(len(x)), local_batch_at_most=4)


def test_workers_that_sum_different_things_are_told() -> None:
    def script(job: Any) -> Any:
        return trained(job, lambda epoch, x: epoch.sum(len(x)) if epoch.rank else epoch.reduce("words", 1.0))

    with pytest.raises(RuntimeError, match="other workers sum another name"):
        Conductor({0: 2}).run(script)


class Engine:
    """Whose sums take a while."""

    release = "zeros"
    seconds = 0.0

    def begin_push(self, array: object) -> Callable[[], None]:
        return lambda: None

    def wait(self, array: object) -> None:
        time.sleep(self.seconds)


class Gradient:
    def wait_to_read(self) -> None:
        pass


def test_waiting_for_others_in_a_sum_is_not_told_as_this_workers_own_work() -> None:
    """People look at it to find the slow one."""
    engine = Engine()
    guard = StepGuard(engine, lambda message: None)  # type: ignore[arg-type]
    guard.formed(1, Position(epoch=0, offset=0, step=0))
    began = time.monotonic()
    for step in range(3 * STEPS_PER_MEASUREMENT):
        measured = step and step % STEPS_PER_MEASUREMENT == 0
        work, engine.seconds = (0.05, 0.3) if measured else (0.0, 0.0)
        time.sleep(work)
        assert guard.exchange([1], lambda: None, [Gradient()], aside=True)
        assert guard.apply(Position(epoch=0, offset=0, step=step), lambda: None)
        time.sleep(work)
        engine.seconds, before, began = 0.0, began, time.monotonic()
        assert guard.run(Position(epoch=0, offset=0, step=step + 1), lambda: None, [Gradient()], lambda: None)
        if measured:
            assert 2 * work <= guard._own_seconds[-1] <= time.monotonic() - before - 0.3


@pytest.mark.parametrize("plan", [{0: 3}, {0: 1, 4: 3, 9: 2}], ids=["three", "one, three, two"])
def test_t2_a_batch_that_has_a_loss_without_end_is_left_out_by_all(plan: dict[int, int]) -> None:
    """As the refusal of a batch without a step says."""

    def script(job: Any) -> Any:
        net, numbers_ = mlp(), numbers(SAMPLES, 4)
        numbers_[7] = np.inf
        trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(Rows(numbers_, labels(3))):
                with autograd.record():
                    loss = CROSS(net(x), y)
                bad = float(not np.isfinite(loss.asnumpy()).all())
                if isinstance(job, Plain) and bad:
                    continue
                if epoch.sum(bad):
                    trainer.step(BATCH, ignore_stale_grad=True)
                    continue
                loss.backward()
                trainer.step(BATCH)
        return weights(net)

    all_close(Conductor(plan, [Death(6)] if len(plan) > 1 else [], 1).run(script), script(Plain()))
