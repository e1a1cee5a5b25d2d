"""What is made of a net where an epoch begins or ends, as pseudo-labels and weights of hard samples: right where the
job keeps it or members change at ends of epochs alone, refused where a loss has it in it otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, labels, mlp, numbers, weights
from mxnet import autograd
from phased import taught
from test_script_idioms import all_close
from told import tells

import mxnet as mx  # isort: skip

X, Y = numbers(SAMPLES, 4), labels(3)
Make = Callable[[Any], Any]


def pseudo_labels(net: Any) -> Any:
    return net(mx.nd.array(X)).argmax(axis=1)


def hardness(net: Any) -> Any:
    losses = CROSS(net(mx.nd.array(X)), mx.nd.array(Y))
    return losses / losses.max()


def script(
    job: Any, make: Make, at: str = "begins", keeps: bool = True, hybrid: bool = False, **said: Any
) -> list[Any]:
    net, made = mlp(), {"s": mx.nd.zeros(SAMPLES)}
    if hybrid:
        net.hybridize()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    if keeps:
        made = job.keep(made)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, **said):
        if at == "begins" and not (keeps and epoch.resumed):
            made["s"][:] = make(net)
        for x, y, i in epoch.batches(Rows(X, Y, np.arange(SAMPLES))):
            with autograd.record():
                out, own = net(x), made["s"].take(i)
                loss = CROSS(out, y) * (1 + own) if make is hardness else CROSS(out, y) + CROSS(out, own)
            loss.backward()
            trainer.step(BATCH)
        if at == "ends":
            made["s"][:] = make(net)
    return weights(net)


MAKES = pytest.mark.parametrize("make", [pseudo_labels, hardness], ids=lambda f: f.__name__)
PLACES = pytest.mark.parametrize("at", ["begins", "ends"])


@PLACES
@MAKES
def test_t2_what_the_job_keeps_is_that_of_one_process(make: Make, at: str) -> None:
    conductor = Conductor({0: 1, 5: 3, 7: 2}, [Death(6, 1)], 1)
    all_close(conductor.run(lambda job: script(job, make, at)), script(Plain(), make, at))


@PLACES
@MAKES
def test_t2_where_members_change_at_ends_of_epochs_it_needs_not_be_kept(make: Make, at: str) -> None:
    """Of what is made where one ends, a worker that joins then has none."""
    plan = {0: 2, 4: 3} if at == "begins" else {0: 2}
    run = lambda job: script(job, make, at, keeps=False, changes="epoch")  # noqa: E731
    all_close(Conductor(plan, [], None).run(run), script(Plain(), make, at))


@pytest.mark.parametrize("hybrid", [False, True])
@PLACES
@MAKES
def test_t2_otherwise_it_is_refused_in_the_first_batch_that_needs_it(make: Make, at: str, hybrid: bool) -> None:
    step = 0 if at == "begins" else 4
    with tells("DT505", f"the loss of step {step} "):
        Conductor({0: 2}).run(lambda job: script(job, make, at, keeps=False, hybrid=hybrid))


def near_the_begin(job: Any, copies: bool) -> list[Any]:
    """Outputs stay near those of the net that the epoch began with, as those of an earlier policy."""
    net, old = mlp(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
    if not copies:
        job.keep(old)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        if copies:
            old = copy.deepcopy(net)
        elif not epoch.resumed:
            for mine, its in zip(net.collect_params().values(), old.collect_params().values(), strict=True):
                its.set_data(mine.data())
        for x, y in epoch.batches(Rows(X, Y)):
            taught(net, old, trainer, x, y, BATCH)
    return weights(net)


def test_t2_a_copy_of_the_net_is_set_where_the_epoch_begins_or_refused() -> None:
    conductor = Conductor({0: 1, 5: 3, 7: 2}, [Death(6, 1)], 1)
    all_close(conductor.run(lambda job: near_the_begin(job, False)), near_the_begin(Plain(), True))
    with tells("DT505"):
        Conductor({0: 2}).run(lambda job: near_the_begin(job, True))


def test_t2_a_net_that_does_not_train_gives_the_same_to_everybody() -> None:
    def frozen(job: Any) -> list[Any]:
        net, body = mlp(), mlp(seed=2)
        trainer = job.trainer([*net.collect_params().values(), *body.collect_params().values()], "sgd")
        body.collect_params().setattr("grad_req", "null")
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            features = body(mx.nd.array(X))
            for x, y, i in epoch.batches(Rows(X, Y, np.arange(SAMPLES))):
                with autograd.record():
                    loss = CROSS(net(x), y) + CROSS(net(x), features.take(i).argmax(axis=1))
                loss.backward()
                trainer.step(BATCH)
        return weights(net)

    all_close(Conductor({0: 1, 2: 3}, [], 1).run(frozen), frozen(Plain()))
