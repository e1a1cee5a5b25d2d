"""What a script does when an epoch's batches are behind it: a rate for the next one, weights that are written, the
job's end. A worker that is lost in the last step must not part those that go on from those that come in its place.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.membership.membership import Membership
from idioms import BATCH, SAMPLES, mlp, train, weights
from test_script_idioms import all_close

PER_EPOCH = -(-SAMPLES // BATCH)
LAST = PER_EPOCH - 1  # step of the first epoch
MOMENTS = ["before", "applied"]


def decays(job: Any, **options: Any) -> list[Any]:
    """A rate and weights for the next epoch, set where this one ends."""
    net, rate = mlp(), 0.1
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})

    def ends(epoch: Any) -> None:
        trainer.set_learning_rate(0.1 * 0.3 ** (epoch + 1))
        for p in net.collect_params().values():
            p.set_data(p.data() * 0.9)

    train(job, net, trainer, ends=ends, **options)
    return weights(net)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("plan", [{0: 3}, {0: 1, LAST - 1: 2}, {0: 3, PER_EPOCH: 2}], ids=["3", "1-2", "3-2"])
def test_t7_who_comes_for_a_worker_lost_in_an_epochs_last_step_has_what_the_script_set_after_it(
    plan: dict[int, int], moment: str
) -> None:
    deaths = [Death(LAST, 0, 0, moment), Death(LAST + PER_EPOCH, 1, 0, moment)]
    all_close(Conductor(plan, deaths, 2).run(decays), decays(Plain()))


class Unheard(Membership):
    """Alone, where a generation forms at the boundary in whose place the script stops: its word to stop is lost."""

    def __init__(self, alone: Membership) -> None:
        super().__init__(alone.kvstore)
        self.asked_steps: list[int] = []

    def boundary(self, position: Position) -> Position:
        self.asked_steps.append(position.step)
        if self.asked_steps.count(position.step) == 1:
            return position
        return super().boundary(position)


def test_a_job_that_is_stopped_while_a_generation_forms_stops_there_all_the_same() -> None:
    """Else it would train as far as the next boundary: an epoch more than the script wanted."""
    net, begun = mlp(), []
    membership = Unheard(Membership.join("worker"))
    job = ElasticJob(membership, 1)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    train(job, net, trainer, begins=lambda epoch: begun.append(int(epoch)), ends=lambda _: job.stop())
    assert begun == [0]
    assert membership.asked_steps == [PER_EPOCH, PER_EPOCH]
