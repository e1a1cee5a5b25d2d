"""What a script draws where an epoch begins, by functions that give other numbers on each worker."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.training.job import ElasticJob
from idioms import mlp, train, weights

import mxnet as mx  # isort: skip


def trained(job: Any, begins: Callable[[Any], object]) -> list[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    np.random.uniform(size=3)  # before the loop all workers draw the same
    train(job, net, trainer, begins=begins, ends=lambda _: random.random(), probe=False)  # it draws for its validation
    return weights(net)


DRAWS = {
    "numpy": (lambda _: np.random.permutation(9), "np.random"),
    "python": (lambda _: random.shuffle([1, 2, 3]), "random"),
    "the job's": (lambda epoch: epoch.random("order").permutation(9), None),
    "mxnet": (lambda _: mx.nd.random.normal(shape=(4, 4)), "mx.random"),
    "first weights": (lambda _: mlp(), None),
    "nothing": (lambda _: None, None),
}


@pytest.mark.parametrize(("begins", "says"), DRAWS.values(), ids=DRAWS)
def test_t2_what_is_drawn_where_an_epoch_begins_is_told_of_once(
    begins: Callable[[Any], object],
    says: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dataset that is shuffled so has another order on each worker: some samples count twice, others never."""
    job = ElasticJob.join()
    monkeypatch.setattr(job.membership, "probes", True)
    with caplog.at_level(logging.WARNING):
        trained(job, begins)
    told = [message for message in caplog.messages if "DT511: " in message]
    assert [f"are drawn by {says} where" in message for message in told] == ([True] if says else [])
