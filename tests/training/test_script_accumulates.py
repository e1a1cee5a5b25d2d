"""`job.trainer(..., accumulate=K)`: an update of several batches, of which an epoch's last may have fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.sharding import epoch_order, is_boundary
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, nothing, weights
from mxnet import autograd, gluon
from mxnet.gluon.data.dataloader import default_batchify_fn
from test_script_idioms import all_close

GROUP = 3  # of the four batches of an epoch: three, and one
OPTIMIZER = ("adam", {"learning_rate": 0.03})


def statically(normalise: float, divides: float) -> list[Any]:
    """As GluonNLP's scripts do it in one process."""
    net, rows = mlp(), data()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = gluon.Trainer(params, *OPTIMIZER, kvstore=None)
    for epoch in range(EPOCHS):
        order = epoch_order(SAMPLES, 0, epoch)
        cuts = range(0, SAMPLES, BATCH)
        for i, at in enumerate(cuts):
            x, y = default_batchify_fn([rows[int(index)] for index in order[at : at + BATCH]])
            with autograd.record():
                loss = CROSS(net(x), y)
                loss = loss.mean() / normalise if normalise else loss
            loss.backward()
            if (i + 1) % GROUP == 0 or i == len(cuts) - 1:
                trainer.step(divides)
                params.zero_grad()
    return weights(net)


def elastically(normalise: float, divides: float, zero: bool = True) -> Callable[[Any], list[Any]]:
    def script(job: Any) -> list[Any]:
        net = mlp()
        params = net.collect_params()
        trainer = job.trainer(params, *OPTIMIZER, loss="mean" if normalise else "sum", accumulate=GROUP)
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                    loss = loss.mean() / normalise if normalise else loss
                loss.backward()
                if epoch.update_due:
                    trainer.step(divides)
                    if zero:
                        params.zero_grad()
        return weights(net)

    return script


@pytest.mark.parametrize(
    ("normalise", "divides", "zero", "segment"),
    [(GROUP, 1, True, 1), (GROUP, 1, False, 2), (0, GROUP * BATCH, False, 1), (0, BATCH, True, None)],
    ids=["means", "means, and the job zeroes", "step is told all batches' samples", "step is told one batch's"],
)
def test_t2_the_last_shorter_group_of_an_epoch_is_right_whoever_joins_or_dies(
    normalise: float, divides: float, zero: bool, segment: int | None
) -> None:
    expected = statically(normalise, divides)
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(11, 1, 0, "applied")], segment)
    results = conductor.run(elastically(normalise, divides, zero))
    assert results
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)


def test_workers_come_and_go_between_updates_alone() -> None:
    """A boundary that would be within a group comes at its end."""

    def at(step: int) -> Position:
        return Position(epoch=0, offset=step * BATCH, step=step)

    ends = [step for step in range(3, 30, 3) if is_boundary(at(step), 0, 4, within=3)]
    assert ends == [6, 9, 12, 18, 21, 24]
    assert not is_boundary(at(2), 0, 4, within=3), "the generation has just begun"
    assert not is_boundary(at(3), 0, None, within=3)
    for segment in (1, 2):
        joined = Conductor({0: 1, 1: 3}, [], segment)
        joined.run(elastically(GROUP, 1))
        assert 3 in (steps := {position.step for position in joined.blocks})
        assert steps <= {0, 3, 4, 7, 8, 11, 12}


def counting_anew(job: Any) -> list[Any]:
    """GluonCV's recognizer: the batches are counted anew in each epoch, and what is left over is added to."""
    net = mlp()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if (i + 1) % GROUP == 0:
                trainer.step(GROUP * BATCH)
                params.zero_grad()
    return weights(net)


@pytest.mark.parametrize("plan", [({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1), ({0: 3}, [], None)])
def test_t2_a_constant_of_several_batches_stays_one_where_an_epochs_rest_is_added_to(plan: tuple[Any, ...]) -> None:
    all_close(Conductor(*plan).run(counting_anew), counting_anew(Plain()))


def test_a_constant_of_a_shorter_last_group_is_told_what_there_is_for_it() -> None:
    """As a script has it that steps at every third batch, and at an epoch's last."""

    def script(job: Any) -> None:
        net = mlp()
        params = net.collect_params()
        params.setattr("grad_req", "add")
        trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
        loader = job.loader(data(), BATCH)
        for _ in job.epochs(EPOCHS):
            for x, y in loader:
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                if (loader.batch_number + 1) % GROUP == 0 or loader.last:
                    trainer.step(GROUP * BATCH)
                    params.zero_grad()

    with pytest.raises(ValueError, match=r"DT401: .*accumulate=k"):
        script(ElasticJob.join())


def steps_always(job: Any, epoch: Any, trainer: Any) -> None:
    trainer.step(BATCH)


def steps_at_other_batches(job: Any, epoch: Any, trainer: Any) -> None:
    if epoch.step_number == 3:
        trainer.step(BATCH)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (steps_always, r"accumulate=3.*if epoch\.update_due"),
        (steps_at_other_batches, r"trainer\.step\(\.\.\.\) was not called"),
    ],
)
def test_a_step_at_another_batch_than_the_last_of_an_update_is_refused(step: Any, says: str) -> None:
    def script(job: Any) -> None:
        trainer = job.trainer((net := mlp()).collect_params(), "sgd", accumulate=GROUP)
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                step(job, epoch, trainer)

    with pytest.raises(RuntimeError, match=says):
        script(ElasticJob.join())


def test_what_does_not_go_together_says_so_before_the_first_step() -> None:
    job = ElasticJob.join()
    with pytest.raises(ValueError, match="accumulate=0"):
        job.trainer(mlp().collect_params(), "sgd", accumulate=0)
    for accumulate in (1, 4):
        job.trainer(mlp().collect_params(), "sgd", accumulate=accumulate)
    with pytest.raises(ValueError, match="accumulate=1 and 4"):
        next(job.epochs(1, samples=SAMPLES, global_batch=BATCH))
    job = ElasticJob.join()
    job.trainer(mlp().collect_params(), "sgd", accumulate=2)
    with pytest.raises(ValueError, match=r"PerWorker.*Use global_batch="):
        next(job.epochs(1, samples=SAMPLES, batching=PerWorker(BATCH)))


def adding_up(
    job: Any, zeroes: Callable[[Any], object], moment: str = "after", clips: bool = False, **options: Any
) -> None:
    params = (net := mlp()).collect_params()
    params.setattr("grad_req", "add")
    trainer = job.trainer(params, "sgd", **options)

    def comes(to: str) -> None:
        (zeroes if moment == to else nothing)(params)

    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        comes("epoch")
        for x, y in epoch.batches(data()):
            comes("before")
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            if options and not epoch.update_due:
                continue
            if clips:
                trainer.allreduce_grads()
                gluon.utils.clip_global_norm([param.grad() for param in params.values()], 1.0)
                trainer.update(BATCH)
            else:
                trainer.step(BATCH)
            comes("after")


def test_layers_that_are_frozen_stay_so() -> None:
    net = mlp()
    net[0].collect_params().setattr("grad_req", "null")
    ElasticJob.join().trainer(net.collect_params(), "sgd", accumulate=2)
    assert [p.grad_req for p in net.collect_params().values()] == ["null", "null", "add", "add"]
