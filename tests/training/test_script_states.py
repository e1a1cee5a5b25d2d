"""Files of a trainer's states, as scripts have them beside their checkpoints: of a job, and of a run without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, SAMPLES, labels, mlp, numbers, train, weights
from mxnet import autograd, gluon, lr_scheduler
from mxnet.gluon.utils import split_and_load
from test_script_idioms import all_close

import mxnet as mx  # isort: skip
import numpy as np

CPUS = [mx.cpu(0), mx.cpu(1)]


def options_of(optimizer: str) -> dict[str, Any]:
    schedule = lr_scheduler.FactorScheduler(3, 0.7, base_lr=0.1)
    return {"lr_scheduler": schedule, **({"momentum": 0.9} if optimizer == "sgd" else {})}


def static_run(folder: Path, optimizer: str, contexts: list[Any]) -> None:
    """An epoch of a script that knows nothing of jobs, which leaves its weights and its trainer's states."""
    net = mlp()
    net.collect_params().reset_ctx(contexts)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options_of(optimizer))
    images, classes = numbers(SAMPLES, 4), labels(3)
    for first in range(0, SAMPLES, BATCH):
        x, y = (split_and_load(each[first : first + BATCH], contexts, even_split=False) for each in (images, classes))
        with autograd.record():
            losses = [CROSS(net(a), b) for a, b in zip(x, y, strict=True)]
        autograd.backward(losses)
        trainer.step(BATCH)
    net.save_parameters(str(folder / "weights"))
    trainer.save_states(str(folder / "states"))


def goes_on(folder: Path, optimizer: str) -> Callable[[Any], list[Any]]:
    def script(job: Any) -> list[Any]:
        net = mlp()
        net.load_parameters(str(folder / "weights"))
        trainer = job.trainer(net.collect_params(), optimizer, options_of(optimizer))
        trainer.load_states(str(folder / "states"))
        train(job, net, trainer)
        return weights(net)

    return script


@pytest.mark.parametrize("contexts", [CPUS[:1], CPUS], ids=["one device", "two devices, whose store updates"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_t2_the_states_of_a_run_without_a_job_are_gone_on_with(
    optimizer: str, contexts: list[Any], tmp_path: Path
) -> None:
    """Momentum, the number of updates made, and the schedule that is in the file."""
    static_run(tmp_path, optimizer, contexts)
    script = goes_on(tmp_path, optimizer)
    expected = script(Plain())
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(script), expected)


def test_t2_saved_states_of_a_trainer_are_taken_up_by_gluons_own_and_back(tmp_path: Path) -> None:
    """`trainer.save_states` and `load_states`, as scripts have them beside their checkpoints."""
    net = mlp()
    job = ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    train(job, net, trainer, epochs=1)
    trainer.save_states(str(tmp_path / "states"))
    for other in (gluon.Trainer(net.collect_params(), "adam"), ElasticJob.join().trainer(net.collect_params(), "adam")):
        other.load_states(str(tmp_path / "states"))
        for i, states in trainer._updaters[0].states.items():
            for mine, theirs in zip(other._updaters[0].states[i], states, strict=True):
                assert np.array_equal(mine.asnumpy(), theirs.asnumpy())
