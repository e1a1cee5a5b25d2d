"""A script that goes on from a checkpoint of its own: its updates are counted on as in one process, which begins at 0
unless `begin_num_update` or the file of states says otherwise; also where all workers begin anew later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Plain
from dyntrain.training.job import PerWorker
from dyntrain.training.module import Module, ModuleStore
from idioms import CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd, gluon
from mxnet.module.module import Module as ModuleOfMxnet
from test_module_batches import EPOCHS as EPOCHS_OF_MODULE
from test_module_batches import Divided, One, assert_all_close, network, writer_again
from test_script_idioms import all_close

__all__ = ["writer_again"]
WORKERS, EACH = 2, 4
EARLIER_UPDATES = 5  # updates before
RESTARTED = 4  # the step that all workers begin anew with
OPTIMIZERS = {"sgd": {"momentum": 0.9}, "adam": {}}


def options(optimizer: str, **more: Any) -> dict[str, Any]:
    """With a rate that falls within the epochs that are trained, and has fallen by then where it is counted on."""
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.5, base_lr=0.05)
    return {**OPTIMIZERS[optimizer], "lr_scheduler": schedule, "learning_rate": 0.05, **more}


@pytest.fixture(scope="module", params=OPTIMIZERS)
def optimizer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def states(optimizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a trainer that has made some updates."""
    net, path = mlp(), tmp_path_factory.mktemp("states") / "trainer"
    trainer = gluon.Trainer(net.collect_params(), optimizer, options(optimizer), kvstore=None)
    x, y = map(mx.nd.array, data()[:EACH])
    for _ in range(EARLIER_UPDATES):
        with autograd.record():
            loss = CROSS(net(x), y)
        loss.backward()
        trainer.step(EACH)
    trainer.save_states(str(path))
    return path


def goes_on(job: Any, optimizer: str, states: Path | None, **batching: Any) -> list[Any]:
    net = mlp()
    begins = {} if states else {"begin_num_update": EARLIER_UPDATES}
    trainer = job.trainer(net.collect_params(), optimizer, options(optimizer, **begins))
    if states:
        trainer.load_states(str(states))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, **(batching or {"global_batch": WORKERS * EACH})):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(x.shape[0])
    return weights(net)


@pytest.mark.parametrize("way", ["begin_num_update", "load_states"])
@pytest.mark.parametrize("batching", [{}, {"batching": PerWorker(EACH, ramp=0)}], ids=["over all", "per worker"])
def test_what_was_trained_before_counts_as_in_one_process(
    optimizer: str, states: Path, way: str, batching: dict[str, Any]
) -> None:
    def script(job: Any) -> list[Any]:
        return goes_on(job, optimizer, states if way == "load_states" else None, **batching)

    expected = goes_on(Plain(), optimizer, states if way == "load_states" else None)
    before = Conductor({0: WORKERS, RESTARTED: WORKERS + 1}, segment_steps=1, size=WORKERS)
    if batching:
        all_close(Conductor({0: WORKERS}, size=WORKERS).run(script), expected)
        before.run(script)
    else:
        all_close(before.run(script), expected)
    (block,) = [block for at, block in before.blocks.items() if at.step == RESTARTED]
    all_close(Conductor({0: WORKERS}, start=block, size=WORKERS).run(script), expected)


@pytest.fixture(scope="module")
def checkpoint(optimizer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a Module, with its optimizer's states, after two epochs."""
    prefix = str(tmp_path_factory.mktemp("checkpoint") / "model")
    module = ModuleOfMxnet(network("sums"))
    train, _ = Divided().get_data_iterator(One())
    values = {"one_weight": mx.nd.array(np.linspace(-1, 1, 18).reshape(3, 6)), "one_bias": mx.nd.zeros(3)}
    parameters = {"optimizer": optimizer, "optimizer_params": options(optimizer)}
    module.fit(train, num_epoch=2, arg_params=values, initializer=None, **parameters)
    module.save_checkpoint(prefix, 2, save_optimizer_states=True)
    return prefix


def module_goes_on(module: Any, optimizer: str, begins: int | None, **settings: Any) -> list[Any]:
    train, _ = Divided().get_data_iterator(One())
    more = {} if begins is None else {"begin_num_update": begins}
    parameters = {"optimizer": optimizer, "optimizer_params": options(optimizer, **more)}
    module.fit(train, begin_epoch=2, num_epoch=EPOCHS_OF_MODULE, **parameters, **settings)
    arrays, _ = module.get_params()
    return [arrays[name].asnumpy() for name in sorted(arrays)]


@pytest.mark.parametrize("begins", [None, 8], ids=["from 0", "from where it was"])
def test_a_module_that_is_loaded_with_its_states_goes_on_as_in_one_process(
    optimizer: str, checkpoint: str, begins: int | None
) -> None:
    loaded = {"prefix": checkpoint, "epoch": 2, "load_optimizer_states": True}

    def script(job: Any) -> list[Any]:
        kv = ModuleStore(job.membership, "dist_sync")
        return module_goes_on(Module.load(**loaded, data_iterator=Divided()), optimizer, begins, kvstore=kv)

    expected = module_goes_on(ModuleOfMxnet.load(**loaded), optimizer, begins)
    before = Conductor({0: 2, 8: 3}, segment_steps=None)
    assert_all_close(before.run(script), expected)
    (block,) = [block for at, block in before.blocks.items() if at.step == 8]
    assert_all_close(Conductor({0: 2}, segment_steps=None, start=block).run(script), expected)
