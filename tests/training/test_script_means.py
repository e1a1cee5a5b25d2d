"""`loss.mean()` with `step(len(x))`: a worker's share may have as many samples as there are means, one or several. Then
the number says two things, of which the other workers, and the steps before, know the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from idioms import CROSS, labels, mlp, numbers, weights
from matrices import pairwise
from mxnet import autograd, gluon
from test_script_idioms import all_close

EPOCHS = 3
Number = Callable[[Any], float]  # of a batch: what step() is told


def in_hand(x: Any) -> float:
    return len(x)


def one(x: Any) -> float:
    return 1


def dataset(samples: int) -> Any:
    return gluon.data.ArrayDataset(numbers(samples, 4), labels(3, shape=(samples,)))


def trained(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        loss = CROSS(net(x), y).mean()
    loss.backward()


def script(job: Any, samples: int, batch: int, number: Number, accumulate: int = 1) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, loss="mean", accumulate=accumulate)
    for epoch in job.epochs(EPOCHS, samples=samples, global_batch=batch):
        for x, y in epoch.batches(dataset(samples)):
            trained(net, x, y)
            if epoch.update_due:
                trainer.step(number(x))
    return weights(net)


def before(samples: int, batch: int, number: Number, accumulate: int = 1) -> list[Any]:
    """In one process."""
    net = mlp()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1}, kvstore=None)
    for epoch in Plain().epochs(EPOCHS, samples=samples, global_batch=batch):
        for i, (x, y) in epoch.enumerate(dataset(samples)):
            trained(net, x, y)
            if (i + 1) % accumulate == 0 or (i + 1) * batch >= samples:
                trainer.step(number(x))
                params.zero_grad()
    return weights(net)


BATCHES = [  # samples, how many in a batch, batches in an update
    (38, 12, 1),  # an epoch's last batch is of 2: shares of one sample, or none
    (40, 12, 1),
    (12, 3, 1),  # so are all of them, but for the first
    (72, 12, 4),  # a share of 4
    (36, 6, 3),
    (36, 6, 2),
    (30, 6, 4),  # the last update of an epoch is of one batch
]
PLANS = {
    "three": ({0: 3}, [], 1),
    "two": ({0: 2}, [], None),
    "changes": ({0: 1, 2: 3, 8: 2}, [Death(3, 1)], 1),
    "lost in the first step": ({0: 2, 2: 3}, [Death(0, 1)], 1),
}


@pytest.mark.parametrize(("plan", "sizes", "number"), pairwise(PLANS, BATCHES, [in_hand, one]))
def test_t2_what_means_are_divided_by_is_the_same_whoever_has_as_many_samples_as_there_are_means(
    plan: str, sizes: tuple[int, int, int], number: Number
) -> None:
    samples, batch, accumulate = sizes
    elastic = Conductor(*PLANS[plan]).run(lambda job: script(job, samples, batch, number, accumulate))
    all_close(elastic, before(samples, batch, number, accumulate))


def test_a_number_that_is_now_a_mean_and_now_the_samples_is_refused() -> None:
    turns = cycle([1, 12])
    with pytest.raises(ValueError, match=r"DT401: .*: 12, or"):
        Conductor({0: 1}).run(lambda job: script(job, 36, 12, lambda x: next(turns)))


def by_hand(job: Any, number: Number) -> list[Any]:
    """Every two batches, and nobody told the job."""
    net = mlp()
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=36, global_batch=6):
        for i, (x, y) in epoch.enumerate(dataset(36)):
            trained(net, x, y)
            if i % 2:
                trainer.step(number(x))
                params.zero_grad()
    return weights(net)


def test_as_many_samples_on_each_worker_as_batches_are_refused_where_nothing_tells_which_is_meant() -> None:
    with pytest.raises(ValueError, match=r"DT405: step\(2\).*accumulate=2.*batch size"):
        Conductor({0: 3}).run(lambda job: by_hand(job, in_hand))


def test_t2_what_was_seen_with_one_worker_tells_which_is_meant_with_three() -> None:
    all_close(Conductor({0: 1, 4: 3}).run(lambda job: by_hand(job, in_hand)), before(36, 6, in_hand, 2))
