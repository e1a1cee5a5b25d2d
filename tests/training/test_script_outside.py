"""What a script makes of trained weights outside of its batches by more ways than its net's outputs: a net that an
earlier loop has set, adversarial samples, a net of its own that is fitted, a file. Right where the job keeps it, and
refused where a batch needs it and the job does not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, data, labels, mlp, numbers, weights
from mxnet import autograd, gluon
from phased import step, taught, trained
from test_script_idioms import all_close
from told import tells

import mxnet as mx  # isort: skip

Write = Callable[[Any, Any], None]  # from one net to another
X, Y = numbers(SAMPLES, 4), labels(3)


def copied(of: Any, to: Any) -> None:
    for mine, its in zip(of.collect_params().values(), to.collect_params().values(), strict=True):
        its.set_data(mine.data())


def changes() -> Conductor:
    """A worker comes to the second loop, which is begun with its eighth step."""
    return Conductor({0: 2, 10: 3, 14: 2}, [Death(12)], 2, loops=2)


def by_the_best(job: Any, at_end: Write, between: Write, keeps: bool = False) -> list[Any]:
    """By the best net of the first loop."""
    net, best = mlp(), mlp()
    if keeps:
        job.keep(best)
    trainer = job.trainer(net.collect_params(), "adam")
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)
        at_end(net, best)
    between(net, best)
    student = mlp(seed=2)
    trainer = job.trainer(student.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(Rows(X, Y)):
            taught(student, best, trainer, x, y, BATCH)
    return weights(student)


def averaged(net: Any, best: Any) -> None:
    for mine, its in zip(net.collect_params().values(), best.collect_params().values(), strict=True):
        its.data()[:] = 0.5 * its.data() + 0.5 * mine.data()


def nothing(net: Any, best: Any) -> None:
    """The script leaves it as it is."""


def set_anew(net: Any, best: Any) -> None:
    copied(mlp(seed=3), best)


@pytest.mark.parametrize("at_end", [copied, averaged])
def test_t2_a_net_that_one_loop_sets_teaches_in_the_next_if_it_is_kept(at_end: Write) -> None:
    ran = changes().run(lambda job: by_the_best(job, at_end, nothing, keeps=True))
    all_close(ran, by_the_best(Plain(), at_end, nothing))
    with tells("DT504"):
        Conductor({0: 2}, loops=2).run(lambda job: by_the_best(job, at_end, nothing))


def test_t2_what_is_set_anew_between_them_to_what_everybody_has_needs_not_be_kept() -> None:
    all_close(
        changes().run(lambda job: by_the_best(job, copied, set_anew)),
        by_the_best(Plain(), copied, set_anew),
    )


Make = Callable[[Any, Any], Any]  # what is added to the samples, of the net, and of whether this worker writes


def adversarial(net: Any, job: Any) -> Any:
    x = mx.nd.array(X)
    x.attach_grad()
    with autograd.record():
        loss = CROSS(net(x), mx.nd.array(Y))
    loss.backward()
    return 0.3 * x.grad.sign()


def of_a_fitted_net(net: Any, job: Any) -> Any:
    """Distilled where no job looks on."""
    small = gluon.nn.Dense(4, in_units=4)
    small.initialize(mx.init.One())
    own = gluon.Trainer(small.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=None)
    wanted = net(mx.nd.array(X)).sum(axis=1, keepdims=True)
    for _ in range(3):
        with autograd.record():
            loss = ((small(mx.nd.array(X)) - wanted) ** 2).sum(axis=1)
        loss.backward()
        own.step(SAMPLES)
    return small(mx.nd.array(X))


def wide(net: Any) -> Any:
    """What it gives is as wide as the samples."""
    return net(mx.nd.array(X)).sum(axis=1, keepdims=True)


def of_a_net_set_by(set_it: Callable[[Any, Any, Any], Any]) -> Make:
    def makes(net: Any, job: Any) -> Any:
        other = mlp(seed=3)
        return wide(set_it(net, other, job) or other)

    makes.__name__ = set_it.__name__
    return makes


def by_set_data(net: Any, other: Any, job: Any) -> None:
    copied(net, other)


def by_an_initializer(net: Any, other: Any, job: Any) -> None:
    for mine, its in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
        its.initialize(mx.init.Constant(mine.data()), force_reinit=True)


def by_parameters(net: Any, other: Any, job: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net.save_parameters(file := os.path.join(folder, "net.params"))
        other.load_parameters(file)


def by_an_export(net: Any, other: Any, job: Any) -> Any:
    net.hybridize()
    net(mx.nd.array(X))
    with tempfile.TemporaryDirectory() as folder:
        net.export(os.path.join(folder, "net"))
        return gluon.SymbolBlock.imports(f"{folder}/net-symbol.json", ["data"], f"{folder}/net-0000.params")


def of_an_executor(net: Any, job: Any) -> Any:
    arrays = {name: p.data() for name, p in net.collect_params().items()}
    executor = net(mx.sym.var("data")).bind(mx.cpu(), {"data": mx.nd.array(X), **arrays})
    return executor.forward()[0].sum(axis=1, keepdims=True)


def of_a_module(net: Any, job: Any) -> Any:
    module = mx.mod.Module(net(mx.sym.var("data")), label_names=None)
    module.bind([("data", X.shape)], for_training=False)
    module.set_params({name: p.data() for name, p in net.collect_params().items()}, {})
    module.forward(mx.io.DataBatch([mx.nd.array(X)]), is_train=False)
    return module.get_outputs()[0].sum(axis=1, keepdims=True)


def by_arrays(net: Any, job: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        mx.nd.save(file := os.path.join(folder, "made"), [wide(net)])
        return mx.nd.load(file)[0]


SETS: list[Any] = [by_set_data, by_parameters]
IN_AN_EPOCH: list[Make] = [adversarial, of_a_fitted_net, *map(of_a_net_set_by, SETS)]
MAKES = [*IN_AN_EPOCH, by_arrays, *map(of_a_net_set_by, [by_an_initializer, by_an_export])]


def script(job: Any, make: Make, keeps: bool = True) -> list[Any]:
    net, student = mlp(), mlp(seed=2)
    trained(
        net, job.trainer(net.collect_params(), "adam"), job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop")
    )
    kept = {"s": make(net, job)}
    if keeps:
        kept = job.keep(kept)
    trainer = job.trainer(student.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y, i in epoch.batches(Rows(X, Y, np.arange(SAMPLES))):
            step(student, trainer, x + kept["s"].take(i), y, BATCH)
    return weights(student)


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_t2_what_is_made_between_two_loops_is_kept_or_told_of(make: Make) -> None:
    all_close(changes().run(lambda job: script(job, make)), script(Plain(), make))
    conductor = Conductor({0: 2}, loops=2)
    with tells("DT504"):
        conductor.run(lambda job: script(job, make, keeps=False))


def in_one_loop(job: Any, make: Make, keeps: bool = True) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    kept = {"s": mx.nd.zeros((SAMPLES, 4))}
    if keeps:
        kept = job.keep(kept)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, name="loop"):
        if not epoch.resumed:
            kept["s"][:] = make(net, job)
        for x, y, i in epoch.batches(Rows(X, Y, np.arange(SAMPLES))):
            step(net, trainer, x + kept["s"].take(i), y, BATCH)
    return weights(net)


@pytest.mark.parametrize("make", IN_AN_EPOCH, ids=lambda make: make.__name__)
def test_t2_what_is_made_where_an_epoch_begins_is_kept_or_told_of(make: Make) -> None:
    conductor = Conductor({0: 1, 5: 3, 7: 2}, [Death(6, 1)], 1)
    all_close(conductor.run(lambda job: in_one_loop(job, make)), in_one_loop(Plain(), make))
    with tells("DT505"):
        Conductor({0: 2}).run(lambda job: in_one_loop(job, make, keeps=False))


@pytest.mark.parametrize("make", [of_an_executor, of_a_module])
def test_t2_what_a_symbol_gives_is_refused_likewise(make: Make) -> None:
    """By one worker: MXNet may not bind symbols in several threads."""
    with tells("DT504"):
        Conductor({0: 1}, loops=2).run(lambda job: script(job, make, keeps=False))
    with tells("DT505"):
        Conductor({0: 1}).run(lambda job: in_one_loop(job, make, keeps=False))


def relabelled(job: Any, at: str) -> list[Any]:
    """A dataset whose labels the script writes anew in each epoch."""
    net, made = mlp(), job.keep({"z": mx.nd.zeros((SAMPLES, 3))})
    rows = Rows(X, Y, made["z"])
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, name="loop"):
        if at == "begins" and not epoch.resumed:
            made["z"][:] = net(mx.nd.array(X)).softmax()
        for x, y, z in epoch.batches(rows):
            with autograd.record():
                out = net(x)
                loss = CROSS(out, y) + ((out - z) ** 2).sum(axis=1)
            loss.backward()
            trainer.step(BATCH)
        if at == "ends":
            made["z"][:] = net(mx.nd.array(X)).softmax()
    return weights(net)


@pytest.mark.parametrize("at", ["begins", "ends"])
def test_t2_rows_that_are_written_anew_in_each_epoch_are_kept(at: str) -> None:
    conductor = Conductor({0: 1, 5: 3, 7: 2}, [Death(6, 1)], 1)
    all_close(conductor.run(lambda job: relabelled(job, at)), relabelled(Plain(), at))


def from_what_one_has_written(job: Any, file: str) -> list[Any]:
    """While all are in the first loop."""
    net, student, teacher = mlp(), mlp(seed=2), mlp(seed=3)
    trainer = job.trainer(net.collect_params(), "adam")
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)
        if job.writes and epoch == 0:
            net.save_parameters(file)
    teacher.load_parameters(file)
    trainer = job.trainer(student.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH, name="loop"):
        for x, y in epoch.batches(Rows(X, Y)):
            taught(student, teacher, trainer, x, y, BATCH)
    return weights(student)


def test_t2_what_one_worker_has_written_is_the_same_for_all(tmp_path: Any) -> None:
    run = lambda job: from_what_one_has_written(job, str(tmp_path / "all"))  # noqa: E731
    all_close(changes().run(run), from_what_one_has_written(Plain(), str(tmp_path / "one")))
