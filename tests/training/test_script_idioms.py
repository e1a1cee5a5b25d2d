"""What people's scripts do, elastically: the weights must be those of the same script in one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.controller.local.pace import patient
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, SCRIPTS, data, mlp, numbers, train, weights
from matrices import crossed
from mxnet import autograd, gluon

import mxnet as mx  # isort: skip

TOLERANCE, LARGEST = 2e-5, 100.0

CHANGES = {
    "three workers": ({0: 3}, [], 2),
    "one, three, two": ({0: 1, 4: 3, 8: 2}, [], 1),
    "at epoch ends": ({0: 1, 4: 3, 8: 2}, [], None),
    "more workers than the last batch has samples": ({0: 7}, [], None),
    "a crash in a step": ({0: 3, 5: 2}, [Death(5, 0)], 2),
    "a crash after the sums": ({0: 3, 6: 2}, [Death(5, 2, 0, "applied")], 3),
    "crashes between two networks' updates, and after both": (
        {0: 4, 3: 3, 6: 2},
        [Death(3, 1, 1), Death(6, 0, 1, "late")],
        2,
    ),
    "a crash in an epoch's first step, and a joiner": ({0: 2, 4: 3}, [Death(4, 1)], None),
}


def all_close(results: list[list[Any]], expected: list[Any]) -> None:
    """Of every worker that came to the end, of which there is one."""
    assert results
    for result in results:
        close(result, expected)


def close(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert np.abs(b).max() < LARGEST, "a training that blows up magnifies what each processor rounds its own way"
        np.testing.assert_allclose(a, b, atol=TOLERANCE, rtol=1e-4)


@pytest.mark.parametrize(("script", "change"), crossed(SCRIPTS, CHANGES))
def test_t2_a_public_scripts_idiom_gives_the_weights_of_one_process(script: Any, change: str) -> None:
    plan, deaths, segment = CHANGES[change]
    expected = script(Plain())
    conductor = Conductor(plan, deaths, segment)
    results = conductor.run(script)
    assert len(results) == len(conductor.members) > 0
    for result in results:
        close(result, expected)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_t5_after_a_restart_from_a_state_in_mid_epoch_the_weights_are_those_of_one_process(script: Any) -> None:
    expected = script(Plain())
    first = Conductor({0: 2, 2: 1, 6: 3}, segment_steps=1)
    first.run(script)
    position, block = next((at, block) for at, block in first.blocks.items() if at.step == 6)
    assert position.offset, "in mid-epoch"
    all_close(Conductor({0: 2}, segment_steps=3, start=block).run(script), expected)


def goes_on(job: Any) -> Any:
    """A long recipe with `--start-epoch`: the rate follows from the epoch's number."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    train(
        job,
        net,
        trainer,
        begins=lambda epoch: trainer.set_learning_rate(0.2 * 0.5**epoch.number),
        epochs=EPOCHS + 2,
        start=2,
    )
    return weights(net)


def test_t2_a_script_that_goes_on_in_a_later_epoch_has_that_epochs_number_order_and_draws() -> None:
    expected = goes_on(Plain())
    all_close(Conductor({0: 1, 2: 3, 6: 2}, [Death(5, 1)], 1).run(goes_on), expected)
    seen = []
    for start in (0, 2):
        job = ElasticJob.join()
        trainer = job.trainer((net := mlp()).collect_params(), "sgd")
        loader = job.loader([(x, i) for i, x in enumerate(numbers(SAMPLES, 4))], BATCH)
        for epoch in job.epochs(3, start=start):
            drawn = epoch.random("noise").random()
            for x, index in loader:
                with autograd.record():
                    loss = net(x).sum()
                loss.backward()
                trainer.step(BATCH)
                if epoch == 2:
                    seen.append((index.asnumpy().tolist(), drawn))
    assert seen[:4] == seen[4:]
    with pytest.raises(ValueError, match=r"epochs \(3\) .* start \(3\)"):
        ElasticJob.join().epochs(3, start=3, samples=4, global_batch=2)


def half(job: Any) -> Any:
    """GluonCV's `--dtype float16`: the optimizer keeps the weights in float32 beside its momentum. On CPUs MXNet has no
    float16 layers, so this one is made of products and sums.
    """
    weight = gluon.Parameter("weight", shape=(4, 3), dtype="float16", init=mx.init.One())
    weight.initialize()
    options = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True}
    trainer = job.trainer([weight], "sgd", options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                outputs = (x.astype("float16").expand_dims(2) * weight.data()).sum(axis=1)
                loss = CROSS(outputs.astype("float32"), y)
            loss.backward()
            trainer.step(BATCH)
    master = trainer._updaters[0].states[0][0].asnumpy()
    assert master.dtype == np.float32
    assert not np.array_equal(master, weight.data().asnumpy()), "it holds more than the weight"
    return [master]


def test_t2_float16_weights_have_the_same_float32_masters_on_every_worker() -> None:
    """Their gradients are rounded before they are summed, so only to about a thousandth."""
    expected = half(Plain())
    for result in Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(half):
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=5e-3)


def test_t2_amp_scales_clips_and_skips_alike_on_every_worker() -> None:
    script = Path(__file__).with_name("amp_idiom.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=patient(100))
    assert done.stdout.strip() == "EQUAL", done.stderr
