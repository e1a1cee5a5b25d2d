"""What a worker does for `dyntrain check`.

What would break for a user: an experiment of so many samples that it takes an hour, one whose comparison does not see a
single number of a large array, or a job that pays for it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.trial.results import load_arrays, saved_arrays
from dyntrain.training.trial_files import VARIABLE, Kill, Order, saved_steps
from dyntrain.training.worker.data.randomness import number_for_seed, seed_generators
from dyntrain.training.worker.loop import trial as trials
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.loop.trial import MOST_KEPT_NUMBERS, Trial, _nudge, _sketch_of, this_trial
from dyntrain.training.worker.probe import draws
from hypothesis import given
from hypothesis import strategies as st
from idioms import mlp, mnist
from mxnet import gluon


def order(folder: Path, **options: Any) -> Order:
    trial_order = Order(folder=folder / "run", steps=12, **options)
    trial_order.write()
    return trial_order


def config(samples: int, batch: int, **options: Any) -> LoopConfig:
    return LoopConfig(epochs=90, samples=samples, batching=FixedGlobal(batch), **options)


def test_a_process_that_is_in_no_trial_has_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert this_trial() is None
    assert number_for_seed(2) == 2


def test_an_epoch_is_short_and_ends_with_the_scripts_own_last_batch(tmp_path: Path) -> None:
    trial = Trial(order(tmp_path))
    shortened = trial.shortened(config(1000, 64))
    assert (shortened.samples, shortened.drawn_from, shortened.steps) == (4 * 64 + 1000 % 64, 1000, 12)
    assert trial.shortened(config(128, 64)).samples == 128, "there are no more"
    assert trial.shortened(config(64_000, 64)).samples == 5 * 64
    assert trial.shortened(config(64, 64, steps=3)).steps == 3, "the script's own end is sooner"


def test_samples_and_epochs_are_those_that_a_person_says(tmp_path: Path) -> None:
    shortened = Trial(order(tmp_path, samples=100, epochs=2)).shortened(config(1000, 64))
    assert (shortened.samples, shortened.epochs) == (100, 2)


def test_a_batch_that_follows_the_workers_is_told(tmp_path: Path) -> None:
    trial_order = order(tmp_path)
    Trial(trial_order).shortened(LoopConfig(epochs=1, samples=10, batching=PerWorker(4)))
    assert trial_order.varying_batch_file.exists()


@given(st.integers(0, 3 * MOST_KEPT_NUMBERS), st.floats(1e-3, 1e3))
def test_one_number_of_a_large_array_shows_by_its_size(place: int, by: float) -> None:
    one = np.zeros(3 * MOST_KEPT_NUMBERS + 1)
    other = one.copy()
    other[place] += by
    assert np.linalg.norm(_sketch_of(one) - _sketch_of(other)) == pytest.approx(by)


@given(st.integers(0, 1000))
def test_what_differs_everywhere_differs_as_much_in_the_sums(seed: int) -> None:
    """Also where all differ to the same side: the sums have signs."""
    rng = np.random.default_rng(seed)
    differs = rng.normal(loc=rng.integers(0, 2), size=20 * MOST_KEPT_NUMBERS)
    assert np.linalg.norm(_sketch_of(differs)) == pytest.approx(np.linalg.norm(differs), rel=0.1)


@pytest.mark.parametrize(("kind", "apart"), [("float32", 1.2e-7), ("float16", 1e-3), ("float64", 1.2e-7)])
def test_weights_begin_one_rounding_apart_as_they_are_stored_or_summed(kind: str, apart: float) -> None:
    array = mx.nd.array(np.linspace(1.0, 1.9, 50), dtype=kind)
    before = array.asnumpy().astype(np.float64)
    _nudge(SimpleNamespace(list_data=lambda: [array]), np.random.default_rng(0))
    moved = np.abs(array.asnumpy().astype(np.float64) / before - 1.0)
    assert 0 < moved.max() <= 2 * apart


def test_each_step_that_counts_is_written_once_by_each_worker_and_void_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial_order = order(tmp_path)
    monkeypatch.setattr(trials, "_freeze_all", lambda norms: None)
    monkeypatch.setattr(Trial, "_record_script", lambda trial: None)
    monkeypatch.setattr("dyntrain.training.worker.loop.training_loop.this_trial", lambda: Trial(trial_order))
    Conductor({0: 1, 3: 3}, segment_steps=1).run(mnist)
    times = [at for at, _ in saved_steps(trial_order.steps_folder)]
    assert {at.step for at in times} == set(range(13))
    assert {at.workers for at in times if at.step > 3} == {3}
    arrays = load_arrays(next(path for at, path in saved_steps(trial_order.steps_folder) if at.step == 5))
    assert sum(name.startswith("gradient ") for name in arrays) == 4
    assert {"held x", "held BATCH"} <= {*arrays}, "what the script has, by its names"
    assert not any(name.startswith("held net") for name in arrays), "what trains is compared anyway"
    (last,) = {path for at, path in saved_steps(trial_order.steps_folder) if (at.step, at.rank) == (12, 0)}
    assert "end BATCH" in load_arrays(last)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trial, Order, Any]:
    """Under way, with the second of two workers."""
    monkeypatch.setattr(trials, "number_for_seed", lambda number: 0)
    for owner, name in ((mx.nd, "save"), (mx.random, "seed"), (gluon.Parameter, "_finish_deferred_init")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    trial, loop = Trial(trial_order := order(tmp_path)), SimpleNamespace(seed=3, rank=1)
    loop.position, loop.membership = SimpleNamespace(step=2), SimpleNamespace(over=False)
    trial._loop = loop
    trial._record_script()
    return trial, trial_order, loop


def test_what_is_saved_last_under_a_name_is_known(watched: Any, tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        mx.nd.save(str(tmp_path / "average.params"), {"a": mx.nd.ones(2) * value})
    mlp().save_parameters(str(tmp_path / "net"))
    arrays = saved_arrays(watched[1])
    assert arrays["average.params a"].tolist() == [2.0, 2.0]
    assert len(arrays) == 5
    assert len(mx.nd.load(str(tmp_path / "average.params"))) == 1


def test_weights_that_are_drawn_in_a_loop_are_each_workers_own_and_between_loops_alike(watched: Any) -> None:
    """By a seed of the script's own they are alike, too."""
    trial, _, loop = watched

    def drawn(rank: int, within: bool = True, own: bool = False) -> tuple[Any, float]:
        """First weights, and what is drawn for the batch after them."""
        loop.rank = rank
        seed_generators(0, 0, 0)
        trial._seeded_alike = within
        if own:
            mx.random.seed(7)
        net = gluon.nn.Dense(3, in_units=4)
        net.initialize(mx.init.Uniform())
        return net.weight.data().asnumpy(), np.random.rand()

    (first, after), (other, its), (again, _) = drawn(0), drawn(1), drawn(0)
    assert not np.array_equal(first, other)
    assert np.array_equal(first, again)
    assert after == its
    assert np.array_equal(drawn(0, own=True)[0], drawn(1, own=True)[0])
    assert np.array_equal(drawn(0, within=False)[0], drawn(1, within=False)[0])


def test_a_kill_is_of_one_worker_and_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(trials.os, "kill", lambda pid, number: killed.append(number))
    trial = Trial(order(tmp_path, kills=(Kill(step=4, rank=2, moment="before"),)))

    def at(step: int, rank: int, workers: int) -> Any:
        return SimpleNamespace(position=SimpleNamespace(step=step), rank=rank, workers=workers)

    for loop, moment in ((at(3, 0, 3), "before"), (at(2, 2, 3), "before"), (at(3, 2, 3), "after")):
        trial.kill_if_planned(loop, moment)  # type: ignore[arg-type]
    assert killed == []
    trial.kill_if_planned(at(3, 1, 2), "before")  # of fewer workers the last one
    trial.kill_if_planned(at(3, 1, 2), "before")
    assert len(killed) == 1


def test_draws_for_a_share_are_rows_of_those_for_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the share is another one in the next step."""
    for module, _ in draws.MODULES:
        for name in draws.DRAW_FUNCTION_NAMES:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    at_hand: list[Any] = [None]
    draws.draw_for_rows(lambda: at_hand[0])

    of_samples = mx.nd.arange(16).reshape((8, 2))

    def drawn(at: slice) -> tuple[list[Any], float]:
        mx.random.seed(3)
        np.random.seed(3)
        mine = of_samples[at]
        few, ones = len(mine), mx.nd.ones_like(mine)
        return [
            mx.nd.random.normal(shape=(few, 2)).asnumpy(),
            np.random.rand(few, 2),
            mx.nd.random.normal_like(mine).asnumpy(),
            mx.nd.random.uniform_like(data=mine).asnumpy(),
            mx.nd.random.normal(mine, ones).asnumpy(),
            mx.nd.sample_uniform(mine, mine + 1).asnumpy(),
            mx.nd.random.multinomial(mx.nd.softmax(mine)).asnumpy(),
            mx.nd.random.multinomial(mx.nd.softmax(mine), get_prob=True)[1].asnumpy(),
        ], np.random.rand()

    whole, after = drawn(slice(0, 8))
    for at in (slice(0, 3), slice(3, 8)):
        at_hand[0] = at.stop - at.start, 8, at
        share, next_one = drawn(at)
        for number, (mine, all_) in enumerate(zip(share, whole, strict=True)):
            assert np.array_equal(mine, all_[at]), number
        assert next_one == after, "as much was drawn"
        several = mx.nd.random.normal(loc=of_samples[at][:, 0], scale=mx.nd.ones(len(mine)), shape=(len(mine),))
        assert several.shape == (len(mine), len(mine)), "so many for each of them"
        assert mx.nd.random.multinomial(mx.nd.ones(len(mine)) / len(mine), shape=2).shape == (2,), "none of the samples"
