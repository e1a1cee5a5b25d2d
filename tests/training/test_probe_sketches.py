"""Gradients in a few numbers: what adds up is told from what does not, and from what rounding makes."""

from __future__ import annotations

import numpy as np
import pytest
from dyntrain.training.worker.probe.sketches import BLOCKS, Difference, largest_difference, sketch

RANDOM = np.random.RandomState(5)
NAMES = {"0": "dense_weight", "1": "dense_bias"}
TOLERANCE = 1e-3


def halves(shape: tuple[int, ...] = (300, 50)) -> tuple[np.ndarray, np.ndarray]:
    return RANDOM.randn(*shape), RANDOM.randn(*shape)


def judged(whole: np.ndarray, one: np.ndarray, other: np.ndarray, weights: tuple[float, float] = (1, 1)) -> object:
    sketches = [{"0": sketch(each)} for each in (whole, one, other)]
    return largest_difference(sketches[0], list(zip(weights, sketches[1:], strict=True)), {"0": NAMES["0"]}, TOLERANCE)


def test_sums_of_many_blocks_stand_for_all_numbers() -> None:
    result = sketch(np.ones((300, 50)))
    assert len(result.sums) == BLOCKS
    assert sum(result.sums) == 300 * 50
    assert result.norm == pytest.approx((300 * 50) ** 0.5)


@pytest.mark.parametrize("shape", [(), (0, 3), (2,)])
def test_small_gradients_have_a_sketch_too(shape: tuple[int, ...]) -> None:
    assert len(sketch(np.zeros(shape)).sums) == int(np.prod(shape))


def test_parts_that_add_up_in_another_order_do_not_differ() -> None:
    one, other = halves()
    assert judged((one + other) * (1 + 1e-6 * RANDOM.randn(300, 50)), one, other) is None


def test_parts_of_a_mean_count_by_their_samples() -> None:
    one, other = halves()
    whole = 0.25 * one + 0.75 * other
    assert judged(whole, one, other, (0.25, 0.75)) is None
    assert judged(whole, one, other) is not None


def test_a_mean_that_is_added_up_is_told_with_its_share() -> None:
    one = RANDOM.randn(16, 16)
    assert judged(one, one, one) == Difference("dense_weight", pytest.approx(0.5))


def test_a_part_in_one_row_alone_shows() -> None:
    """As of an embedding, of which a batch has few rows."""
    one, other = halves()
    whole = one + other
    whole[17] *= 1.5
    assert judged(whole, one, other) is not None


def test_what_rounding_left_of_a_gradient_is_not_compared() -> None:
    """Of a bias below a norm, which nothing depends on."""
    one, other = halves()
    noise = [{"1": sketch(1e-6 * RANDOM.randn(50)), "0": sketch(each)} for each in (one + other, one, other)]
    assert largest_difference(noise[0], [(1, noise[1]), (1, noise[2])], NAMES, TOLERANCE) is None


def test_the_parameter_that_differs_most_is_named() -> None:
    one, other = halves()
    sketches = [{"0": sketch(each), "1": sketch(each)} for each in (one + other, one, other)]
    sketches[0] |= {"0": sketch(1.1 * (one + other)), "1": sketch(1.5 * (one + other))}
    largest = largest_difference(sketches[0], [(1, sketches[1]), (1, sketches[2])], NAMES, TOLERANCE)
    assert largest is not None
    assert largest.name == "dense_bias"


def test_gradients_that_are_no_numbers_say_nothing() -> None:
    one, other = halves()
    with pytest.raises(ValueError, match="not finite"):
        judged(one * np.inf, one, other)
