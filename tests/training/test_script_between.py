"""A net of no trainer that a script writes to between its batches: right where the job keeps it, refused where it has a
part in a batch and the job does not, as a worker that joins would have another one.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.controller.local.pace import patient
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.between import gave
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close
from told import tells

Write = Callable[[Any, Any], None]


def pairs(net: Any, target: Any) -> Any:
    return zip(net.collect_params().values(), target.collect_params().values(), strict=True)


def by_set_data(net: Any, target: Any) -> None:
    for mine, its in pairs(net, target):
        its.set_data(mine.data())


def in_place(net: Any, target: Any) -> None:
    for mine, its in pairs(net, target):
        its.data()[:] = mine.data()


def by_copyto(net: Any, target: Any) -> None:
    for mine, its in pairs(net, target):
        mine.data().copyto(its.data())


def through_held_weights(net: Any, target: Any) -> None:
    """Those that the script asked for in an epoch before."""
    target.held = getattr(target, "held", None) or [its.data() for its in target.collect_params().values()]
    for mine, its in zip(net.collect_params().values(), target.held, strict=True):
        its[:] = mine.data()


def by_a_file(net: Any, target: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        net.save_parameters(file := os.path.join(folder, "net.params"))
        target.load_parameters(file)


WAYS = [by_set_data, in_place, by_copyto, through_held_weights, by_a_file]


def script(job: Any, write: Write, at: str = "end", keeps: bool = True, hybrid: bool = False) -> list[Any]:
    """As deep Q-learning has a second net, which is set to the first one now and then."""
    net, target = mlp(), mlp()
    if hybrid:
        target.hybridize()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    if keeps:
        job.keep(target)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        if at == "beginning" and not epoch.resumed:
            write(net, target)
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y) + ((net(x) - target(x).detach()) ** 2).sum(axis=1)
            loss.backward()
            trainer.step(BATCH)
        if at == "end":
            write(net, target)
    return weights(net)


@pytest.mark.parametrize("at", ["beginning", "end"])
@pytest.mark.parametrize("write", WAYS)
def test_t2_what_the_job_keeps_is_that_of_one_process(write: Write, at: str) -> None:
    conductor = Conductor({0: 1, 4: 3, 6: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(lambda job: script(job, write, at)), script(Plain(), write, at))


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("at", ["beginning", "end"])
@pytest.mark.parametrize("write", WAYS)
def test_t2_what_it_does_not_keep_is_refused_where_a_batch_needs_it(write: Write, at: str, hybrid: bool) -> None:
    with tells("DT507", r"job\.keep\(net\)"):
        Conductor({0: 2}).run(lambda job: script(job, write, at, keeps=False, hybrid=hybrid))


def validated(job: Any) -> list[Any]:
    """The best weights so far, with which nothing is trained."""
    net, best = mlp(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        by_set_data(net, best)
        best(x)
    return weights(net)


def test_t2_what_is_written_to_between_batches_and_has_no_part_in_them_is_the_scripts_own() -> None:
    all_close(Conductor({0: 1, 4: 3}).run(validated), validated(Plain()))


def in_two_loops(job: Any) -> list[Any]:
    """A teacher that is set between two loops, to whatever the script says there."""
    net, teacher = mlp(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for name in ("first", "second"):
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, name=name):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y) + ((net(x) - teacher(x).detach()) ** 2).sum(axis=1)
                loss.backward()
                trainer.step(BATCH)
        by_set_data(mlp(seed=3), teacher)
    return weights(net)


def test_t2_what_stands_between_two_loops_is_no_matter_of_batches() -> None:
    all_close(Conductor({0: 2, 6: 3}, loops=2).run(in_two_loops), in_two_loops(Plain()))


def test_a_process_that_trains_one_job_after_another_keeps_no_weights_of_the_earlier_ones() -> None:
    """A notebook would run out of memory: each job's weights, with the states of their optimizers."""

    class Weight:
        pass

    kept: list[weakref.ref[Any]] = []

    def trains() -> None:
        for _ in range(3):
            here.loop, here.in_block = SimpleNamespace(membership=object()), False
            weight = Weight()
            kept.append(weakref.ref(weight))
            gave(weight, [Weight(), Weight()])
        del weight
        gc.collect()
        assert [each() is None for each in kept] == [True, True, False]
        found.append(True)

    found: list[bool] = []
    thread = threading.Thread(target=trains)  # what a thread is at is its own
    thread.start()
    thread.join(patient(30))
    assert found == [True]
