"""Dropout and augmentation after a resume: if they drew other numbers, no run with an interruption could be compared
with one without.
"""

from __future__ import annotations

import random
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.data.batches import ArrayBatches
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.membership.membership import Membership
from mxnet import autograd, gluon


class Interrupted(Membership):
    """Keeps the state of the boundary at `epoch`; made with a kept state, it begins there."""

    def __init__(self, epoch: int, block: bytearray | None = None) -> None:
        super().__init__(ElasticKVStore(None))
        self.epoch, self.block = epoch, block

    def enter(self, state: Any, **agreed: Any) -> Position:
        self.state = state
        return state.install(self.block) if self.block else super().enter(state, **agreed)

    def boundary(self, position: Position) -> Position:
        if position.epoch == self.epoch:
            self.block = self.state.pack(position)
        return super().boundary(position)


def train(membership: Interrupted) -> tuple[Any, list[float]]:
    rng = np.random.default_rng(7)
    data = ArrayBatches(rng.normal(size=(40, 6)).astype(np.float32))
    mx.random.seed(1)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8), gluon.nn.Dropout(0.5), gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 6)))
    job, drawn = ElasticJob(membership), []
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(4, samples=40, global_batch=10, seed=3):
        for (x,) in epoch.batches(data):
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(10)
            drawn.append(random.random() + np.random.random())
    return net.collect_params(), drawn


def test_t20_after_a_resume_dropout_and_augmentation_draw_what_they_would_have_drawn() -> None:
    whole = Interrupted(2)
    expected, drawn = train(whole)
    weights = [param.data().asnumpy() for param in expected.values()]
    resumed, later = train(Interrupted(9, whole.block))
    assert all(np.array_equal(a, param.data().asnumpy()) for a, param in zip(weights, resumed.values(), strict=True))
    assert later == drawn[8:]


def test_workers_draw_different_numbers_and_each_boundary_begins_a_new_row() -> None:
    rows = set()
    for seed, step, number in ((0, 0, 0), (0, 0, 1), (0, 5, 0), (1, 0, 0)):
        seed_generators(seed, step, number)
        rows.add((random.random(), float(np.random.random()), float(mx.nd.random.uniform().asscalar())))
    assert len(rows) == 4
    assert len({row[2] for row in rows}) == 4
