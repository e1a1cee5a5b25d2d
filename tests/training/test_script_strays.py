"""A head on a body with BatchNorm, which moves its running means though no trainer has it."""

from __future__ import annotations

from typing import Any

import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.refused import Refused
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, initialise, weights
from mxnet import autograd
from mxnet.gluon import nn
from test_script_idioms import all_close

import mxnet as mx  # isort: skip


def fine_tunes(job: Any, way: str, hybrid: bool = False, **options: Any) -> Any:
    """The head alone is trained; the body is called as `way` says."""
    body, head = nn.HybridSequential(), nn.Dense(3)
    body.add(nn.Dense(5), nn.BatchNorm(use_global_stats=way == "global statistics"), nn.Activation("tanh"))
    net = nn.HybridSequential()
    net.add(body, head)
    initialise(net, mx.nd.zeros((1, 4)))
    if hybrid:
        net.hybridize()
    trainer = job.trainer(head.collect_params(), "sgd", {"learning_rate": 0.1})
    if "net" in options:
        options["net"] = net
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, **options):
        for x, y in epoch.batches(data()):
            with autograd.record():
                if way == "predict":
                    with autograd.predict_mode():
                        features = body(x)
                    loss = CROSS(head(features), y)
                elif way == "parts":
                    loss = CROSS(head(body(x)), y)
                else:
                    loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("way", ["whole", "parts"])
def test_running_means_in_no_trainer_are_refused_by_name_before_the_first_step(way: str, hybrid: bool) -> None:
    with pytest.raises(
        Refused, match=r"batchnorm\d+_running_mean, which is in no trainer.*job.epochs\(\.\.\., net=net\)"
    ):
        fine_tunes(ElasticJob.join(), way, hybrid)


@pytest.mark.parametrize("way", ["predict", "global statistics"])
def test_a_body_that_does_not_move_is_trained_on(way: str) -> None:
    expected = fine_tunes(Plain(), way)
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 2).run(lambda job: fine_tunes(job, way)), expected)


def test_with_a_body_that_the_job_was_given_all_train_the_same_head() -> None:
    results = Conductor({0: 3}, [], None).run(lambda job: fine_tunes(job, "whole", net=True))
    assert len(results) == 3
    heads = [result[-2:] for result in results]
    all_close(heads[1:], heads[0])
