"""Numbers of Python's by which a loss is divided: in one process it does not matter whether a script counts the batch
or was told its size. On several workers `len(x)` is of a share, and the sum over them another loss, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.worker.loop.rates import OPINION, UnequalRates, of_one_opinion, opinion
from hypothesis import given
from hypothesis import strategies as st
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

Loss = Callable[[Any, Any, Any], Any]  # of (the job's epoch, losses of the samples, labels)
BEGINS = {"with three": {0: 3}, "alone": {0: 1, 4: 3}}  # 6 samples are 2 for each of three, and for each of the first


def script(job: Any, loss_of: Loss, step: float = BATCH, accumulate: int = 1, **told: Any) -> list[Any]:
    net = mlp()
    trainer = job.trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, accumulate=accumulate, **told
    )
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = loss_of(epoch, CROSS(net(x), y), y)
            loss.backward()
            if epoch.update_due:
                trainer.step(step)
    return weights(net)


def by_length(epoch: Any, losses: Any, y: Any) -> Any:
    return losses.sum() / len(y)


def times_inverse(epoch: Any, losses: Any, y: Any) -> Any:
    return mx.nd.add_n(*[(losses * (1 / len(y))).sum() * 0.5] * 2)


def by_counted(epoch: Any, losses: Any, y: Any) -> Any:
    """GluonNLP's dependency parser."""
    return losses.sum() / int((y >= 0).sum().asscalar())


def each_by_length(epoch: Any, losses: Any, y: Any) -> Any:
    return losses / len(y)


def drawn(epoch: Any, losses: Any, y: Any) -> Any:
    """A mixup whose lambda each worker draws for itself."""
    share = np.random.beta(0.2, 0.2)
    return share * losses + (1 - share) * losses[::-1]


@pytest.mark.parametrize("plan", BEGINS.values(), ids=BEGINS.keys())
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("loss_of", [by_length, times_inverse, by_counted, each_by_length, drawn])
def test_a_number_that_each_worker_counts_in_its_share_is_refused_before_the_first_step_of_several(
    loss_of: Loss, plan: dict[int, int], accumulate: int
) -> None:
    with pytest.raises(UnequalRates, match=r"loss is multiplied or divided on \d of 3.*epoch\.sum.*epoch\.random"):
        Conductor(plan, [], 4).run(lambda job: script(job, loss_of, accumulate=accumulate))


def mean_by_length(epoch: Any, losses: Any, y: Any) -> Any:
    return losses.mean() / len(y)


def test_a_count_of_the_share_beside_a_mean_that_was_told_is_refused_too() -> None:
    with pytest.raises(UnequalRates, match="loss is multiplied or divided"):
        Conductor({0: 3}, [], 4).run(lambda job: script(job, mean_by_length, 1, loss="mean"))


FACTOR = st.tuples(st.sampled_from(["_mul_scalar", "_div_scalar"]), st.integers(1, 9).map(str))


@given(st.lists(st.sets(FACTOR, max_size=2), min_size=2, max_size=MOST_WORKERS))
def test_opinions_agree_where_all_that_have_one_have_the_same(sets: list[set[tuple[str, str]]]) -> None:
    total = np.sum([np.array(opinion(each), dtype=np.float32) for each in sets], axis=0, dtype=np.float32)
    assert of_one_opinion(total.tolist()) == (len({frozenset(each) for each in sets if each}) < 2)


def test_who_has_nothing_to_train_on_has_no_opinion() -> None:
    """As a script multiplies its loss by 0 there."""
    assert opinion({("_mul_scalar", "0.0"), ("_div_scalar", "3.0")}) == opinion(()) == [0.0] * OPINION


def halved(epoch: Any, losses: Any, y: Any) -> Any:
    return (losses.sum() / 2 + losses.sum() * 4) / 4.5


def annealed(epoch: Any, losses: Any, y: Any) -> Any:
    return losses * ((1 + epoch) / 10)


def scaled_mean(epoch: Any, losses: Any, y: Any) -> Any:
    return losses.mean() * 0.25


@pytest.mark.parametrize(
    ("loss_of", "step", "told"), [(halved, BATCH, {}), (annealed, BATCH, {}), (scaled_mean, 1, {"loss": "mean"})]
)
def test_t2_constants_and_what_follows_from_the_epoch_train_as_in_one_process(
    loss_of: Loss, step: float, told: dict[str, Any]
) -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(4, 1), Death(8, 0)], 1)
    all_close(conductor.run(lambda job: script(job, loss_of, step, **told)), script(Plain(), loss_of, step, **told))


def one_by_one(job: Any, **told: Any) -> list[Any]:
    """Sentences of a tree-LSTM: a loss is divided by the words of its own sample."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **told)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                losses = [
                    CROSS(net(x[i : i + 1]), y[i : i + 1]).sum() / (1 + int(y[i].asscalar())) for i in range(len(y))
                ]
            autograd.backward(losses)
            trainer.step(BATCH)
    return weights(net)


def test_t2_what_each_sample_is_divided_by_is_its_own_where_losses_are_said_to_be_of_one() -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(lambda job: one_by_one(job, loss="sum")), one_by_one(Plain()))
