"""Averages of the weights that a script makes in arrays of its own, and the job keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, train, weights
from matrices import crossed
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip
import numpy as np

Arrays = dict[str, Any]
Update = Callable[[Arrays, Arrays, int], None]  # (weights, average, how many were averaged)


def anew(params: Arrays, average: Arrays, _: int) -> None:
    for name, p in params.items():
        average[name] = 0.8 * average[name] + 0.2 * p.data()


def filled(params: Arrays, average: Arrays, _: int) -> None:
    for name, p in params.items():
        average[name][:] = 0.8 * average[name] + 0.2 * p.list_data()[0]


def in_place(params: Arrays, average: Arrays, _: int) -> None:
    for name, p in params.items():
        average[name] *= 0.8
        average[name] += 0.2 * p.data()


def by_difference(params: Arrays, average: Arrays, _: int) -> None:
    for name, p in params.items():
        average[name] -= (average[name] - p.data()) * 0.2


def of_all(params: Arrays, average: Arrays, n: int) -> None:
    for name, p in params.items():
        average[name] = (average[name] * n + p.data()) / (n + 1)


def looking_ahead(params: Arrays, average: Arrays, _: int) -> None:
    for name, p in params.items():
        average[name] += 0.5 * (p.data() - average[name])
        p.data()[:] = average[name]


WAYS = [anew, filled, in_place, by_difference, of_all, looking_ahead]


def averages(job: Any, update: Update, every: str = "step") -> list[Any]:
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
    average = job.keep({name: p.data().copy() for name, p in params.items()})
    memory = job.memory(averaged=1)

    def averages_now(_: Any) -> None:
        update(params, average, memory.averaged)
        memory.averaged += 1

    when = {"step": "after", "epoch": "ends"}[every]
    train(job, net, trainer, epochs=EPOCHS, **{when: averages_now})
    return [*weights(net), *(array.asnumpy() for array in average.values())]


@pytest.mark.parametrize(("update", "every"), crossed(WAYS, ["step", "epoch"], each=1))
def test_t2_an_average_that_the_job_keeps_is_that_of_a_run_without_it(update: Update, every: str) -> None:
    expected = averages(Plain(), update, every)
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: averages(job, update, every))
    all_close(results, expected)


def looks(job: Any) -> list[Any]:
    """How far the weights went since the step and the epoch before, the best so far, a validation with other ones."""
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
    before = started = best = {name: p.data().copy() for name, p in params.items()}
    total = mx.nd.zeros(1)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            total += sum((p.data() - before[name]).norm() for name, p in params.items())
            before = {name: p.data().copy() for name, p in params.items()}
        moved = {name: p.data() - started[name] for name, p in params.items()}
        assert all(each.norm().asscalar() > 0 for each in moved.values())
        started = {name: p.data().copy() for name, p in params.items()}
        backup = {name: p.data().copy() for name, p in params.items()}
        for name, p in params.items():
            p.set_data(best[name])
        net(mx.nd.zeros((1, 4)))
        for name, p in params.items():
            p.set_data(backup[name])
        best = backup
    return weights(net)


def test_t2_what_only_looks_at_weights_of_before_is_trained_on() -> None:
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(looks), looks(Plain()))


def freezes(job: Any, every: str) -> list[Any]:
    """Each time MXNet gives the weights other arrays."""
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(4, samples=SAMPLES, global_batch=BATCH):
        params.setattr("grad_req", "write")
        for x, y in epoch.batches(data()):
            if every == "step":
                params.setattr("grad_req", "write")
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            assert all(np.isfinite((0.5 * p.data()).asnumpy()).all() for p in params.values())
            if every == "step":
                params.setattr("grad_req", "null")
        params.setattr("grad_req", "null")
    return weights(net)


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_t2_weights_that_are_frozen_by_turns_are_no_average(every: str) -> None:
    expected = freezes(Plain(), every)
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: freezes(job, every)), expected)


def decays_by_hand(job: Any, how: str) -> list[Any]:
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.2, "momentum": 0.9})
    for epoch in job.epochs(4, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.allreduce_grads()
            for p in params.values():
                if how == "decay":
                    p.grad()[:] = p.grad() + BATCH * 0.01 * p.data()
                else:
                    p.grad()[:] += BATCH * 0.01 * p.data().sign()
            trainer.update(BATCH)
    return weights(net)


@pytest.mark.parametrize("how", ["decay", "sparsity"])
def test_t2_a_term_of_the_weights_that_is_added_to_the_gradients_is_no_average(how: str) -> None:
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: decays_by_hand(job, how))
    all_close(results, decays_by_hand(Plain(), how))


def holds_near(job: Any, way: str, changes: Any = "any") -> list[Any]:
    """The weights to those where the epoch began, or the job; in the loss, or in the gradients."""
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.2, "momentum": 0.9}, loss="mean")
    start = {name: p.data().copy() for name, p in params.items()}
    if "kept" in way:
        start = job.keep(start)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, changes=changes):
        if "anew" in way:
            start = {name: p.data().copy() for name, p in params.items()}
        elif "kept" in way and not epoch.resumed:
            for name, p in params.items():
                start[name] = p.data().copy()
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y).mean()
                for name, p in params.items() if "loss" in way else ():
                    loss = loss + 0.5 * ((p.data() - start[name]) ** 2).sum()
            loss.backward()
            trainer.allreduce_grads()
            for name, p in params.items() if "gradients" in way else ():
                p.grad()[:] += p.data() - start[name]
            trainer.update(1)
    return weights(net)


@pytest.mark.parametrize("where", ["loss", "gradients"])
def test_t2_weights_of_an_earlier_step_are_kept_by_the_job(where: str) -> None:
    for way in (f"kept, in the {where}", f"begun with, in the {where}"):
        results = Conductor({0: 1, 2: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job, way=way: holds_near(job, way))
        all_close(results, holds_near(Plain(), way))


def test_t2_where_members_change_between_epochs_each_may_have_its_weights_of_before() -> None:
    results = Conductor({0: 1, 4: 3, 8: 2}, [], None).run(lambda job: holds_near(job, "anew in the loss", "epoch"))
    all_close(results, holds_near(Plain(), "anew in the loss"))
