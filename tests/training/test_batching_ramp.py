"""Per-worker batching: the rate follows the batch without a jump, and momentum keeps its meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.batching import Batching, Ramp, global_batch, momentum_scale, rate_goal, steady

factors = st.floats(0.1, 64.0)


@given(st.integers(1, 64), st.integers(1, 512))
def test_batching_fixed_global_is_deaf_to_the_number_of_workers(workers: int, batch: int) -> None:
    assert (global_batch(Batching.FIXED_GLOBAL, batch, workers), rate_goal(Batching.FIXED_GLOBAL, workers)) == (batch, 1.0)


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 8))
def test_batching_per_worker_rate_grows_as_the_batch_does(workers: int, batch: int, base: int) -> None:
    ratio = global_batch(Batching.PER_WORKER, batch, workers) / global_batch(Batching.PER_WORKER, batch, base)
    assert rate_goal(Batching.PER_WORKER, workers, base) == pytest.approx(ratio)


@given(st.lists(st.tuples(st.integers(1, 32), st.integers(0, 5000)), min_size=1, max_size=6), st.integers(1, 4000))
def test_batching_the_rate_never_jumps_whatever_the_membership_does(changes: list[tuple[int, int]], length: int) -> None:
    ramp, at = steady(), 0
    for workers, gap in changes:
        at += gap
        before = ramp.factor(at)
        ramp = ramp.towards(float(workers), at, length)
        assert ramp.factor(at) == pytest.approx(before)
    assert ramp.factor(at + length) == pytest.approx(float(changes[-1][0]))


@given(factors, factors, st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 30_000))
def test_batching_a_ramp_stays_between_its_ends(start: float, goal: float, since: int, length: int, at: int) -> None:
    assert min(start, goal) - 1e-9 <= Ramp(start, goal, since, length).factor(at) <= max(start, goal) + 1e-9


def test_batching_half_of_the_ramp_is_half_of_the_way() -> None:
    assert Ramp(1.0, 4.0, 1000, 600).factor(1300) == pytest.approx(2.5)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=20))
def test_batching_scaled_momentum_equals_a_rate_outside_the_buffer(rates: list[float]) -> None:
    """v = m v + rate * g with v scaled at each change is the same walk as u = m u + g, w -= rate * u."""
    rng = np.random.default_rng(len(rates))
    gradients = rng.normal(size=len(rates))
    inside = outside = walked_inside = walked_outside = 0.0
    for i, (rate, gradient) in enumerate(zip(rates, gradients, strict=True)):
        if i:
            inside *= momentum_scale(rates[i - 1], rate)
        inside = 0.9 * inside + rate * gradient
        outside = 0.9 * outside + gradient
        walked_inside -= inside
        walked_outside -= rate * outside
    assert walked_inside == pytest.approx(walked_outside, rel=1e-6, abs=1e-9)


def test_batching_compensated_scaling_to_four_workers_converges_again_on_a_noisy_quadratic() -> None:
    """The arithmetic only: one weight, a rate near the edge of stability. It says nothing of networks."""
    rng = np.random.default_rng(3)
    weight, buffer, samples, rate, walk = 5.0, 0.0, 0, 0.12, []
    ramp = steady()
    for step in range(600):
        batch = global_batch(Batching.PER_WORKER, 8, 1 if step < 100 else 4)
        ramp = ramp.towards(rate_goal(Batching.PER_WORKER, batch // 8), samples, 1600)
        before, rate = rate, 0.12 * ramp.factor(samples)
        buffer = 0.9 * buffer * momentum_scale(before, rate) + rate * (weight + rng.normal() * 8 / np.sqrt(batch))
        weight, samples = weight - buffer, samples + batch
        walk.append(abs(weight))
    assert rate == pytest.approx(0.48)
    assert max(walk) < 50
    assert np.mean(walk[-100:]) < 5


@pytest.mark.parametrize("wrong", [lambda: Ramp(0.0, 1.0, 0, 1), lambda: Ramp(1.0, 1.0, 0, -1), lambda: momentum_scale(0.0, 1.0)])
def test_batching_senseless_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"positive|negative|momentum") as caught:
        wrong()  # type: ignore[operator]
    assert str(caught.value)
