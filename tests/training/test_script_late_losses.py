"""A loss that becomes another one in a later epoch, when its trainer was seen to be told the right thing long ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from dyntrain.training.worker.refused import RefusedByAll
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

Loss = Callable[[Any, int], Any]  # told the losses of the samples, and how many there are


def trained(job: Any, later: Loss, whole: int = BATCH) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=whole):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
                if epoch > 0:
                    loss = later(loss, len(x))
            loss.backward()
            trainer.step(whole)
    return weights(net)


@pytest.mark.parametrize(
    ("later", "error", "says"),
    [
        pytest.param(lambda loss, _: loss.mean(), RefusedByAll, r"loss='mean'|another worker", id="a-mean"),
        pytest.param(lambda loss, size: loss / size, UnequalRates, "DT412", id="divided-by-the-share"),
    ],
)
def test_t2_what_a_loss_becomes_in_a_later_epoch_is_refused_by_all(
    later: Loss, error: type[Exception], says: str
) -> None:
    """Also where the workers' shares would be alike: 6 samples over three."""
    conductor = Conductor({0: 3}, [], 2)
    with pytest.raises(error, match=says):
        conductor.run(lambda job: trained(job, later, 6))
    assert any("another worker" not in str(raised) for raised in conductor.errors), "one of them says what to write"


@pytest.mark.parametrize("later", [lambda loss, _: 0.5 * loss, lambda loss, _: loss.sum()], ids=["scaled", "summed"])
def test_t2_another_loss_that_is_a_sum_trains_on(later: Loss) -> None:
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: trained(job, later))
    all_close(results, trained(Plain(), later))


def test_the_first_shares_of_an_epoch_differ_by_a_sample() -> None:
    """Where all are alike a division by their size would not show."""
    sizes = {
        at: [len(shares.take(Position(epoch=at[0], offset=at[1], step=at[2]), number, 3)[0]) for number in range(3)]
        for shares in [Shares(24, 3, 0, FixedGlobal(6), begins=2)]
        for at in [(0, 0, 0), (0, 12, 2), (0, 18, 3), (1, 0, 4), (1, 6, 5)]
    }
    assert sizes == {
        (0, 0, 0): [3, 2, 1],
        (0, 12, 2): [3, 2, 1],
        (0, 18, 3): [2, 2, 2],
        (1, 0, 4): [3, 2, 1],
        (1, 6, 5): [2, 2, 2],
    }
    for as_they_are in (Shares(24, 3, 0, FixedGlobal(6)), Shares(24, 3, 0, PerWorker(2), begins=0)):
        assert [len(as_they_are.take(Position(epoch=1, offset=0, step=4), n, 3)[0]) for n in range(3)] == [2, 2, 2]
