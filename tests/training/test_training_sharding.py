"""If these break, samples are trained on twice or never."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.protocol import Position
from training.sharding import after_step, batch_size, epoch_order, is_boundary, share

START = Position(epoch=0, offset=0, step=0)


@given(samples=st.integers(1, 300), global_batch=st.integers(1, 80), seed=st.integers(0, 99), data=st.data())
def test_every_index_is_taken_once_an_epoch_whatever_the_membership_does(samples: int, global_batch: int, seed: int, data: st.DataObject) -> None:
    order, position, taken = epoch_order(samples, seed, 4), Position(epoch=4, offset=0, step=9), []
    while position.epoch == 4:
        workers = data.draw(st.integers(1, 9), label="workers of this step")
        shares = [share(order, global_batch, position.offset, number, workers) for number in range(workers)]
        sizes = [len(part) for part in shares]
        assert max(sizes) - min(sizes) <= 1, "an even share, so that no worker waits longer than one sample for another"
        assert sum(sizes) == batch_size(samples, global_batch, position.offset)
        taken += [int(index) for part in shares for index in part]
        position = after_step(position, samples, global_batch)
    assert sorted(taken) == list(range(samples))


@given(samples=st.integers(1, 1000), seed=st.integers(0, 2**31), epoch=st.integers(0, 500))
def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone(samples: int, seed: int, epoch: int) -> None:
    assert np.array_equal(epoch_order(samples, seed, epoch), epoch_order(samples, seed, epoch))


def test_orders_of_different_epochs_differ() -> None:
    assert not np.array_equal(epoch_order(100, 0, 0), epoch_order(100, 0, 1))


def test_a_job_resumed_under_another_numpy_sees_the_order_it_began_with() -> None:
    assert epoch_order(8, 0, 0).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]


@given(samples=st.integers(1, 200), global_batch=st.integers(1, 50))
def test_an_epoch_ends_after_as_many_steps_as_batches(samples: int, global_batch: int) -> None:
    position, steps = START, 0
    while position.epoch == 0:
        position, steps = after_step(position, samples, global_batch), steps + 1
    assert steps == -(-samples // global_batch)
    assert position == Position(epoch=1, offset=0, step=steps)


def test_boundaries_are_the_ends_of_epochs_and_of_segments() -> None:
    assert not is_boundary(Position(epoch=2, offset=0, step=20), first_step=20, segment_steps=5), "the generation just began here"
    assert is_boundary(Position(epoch=3, offset=0, step=33), first_step=20, segment_steps=None)
    assert is_boundary(Position(epoch=2, offset=50, step=25), first_step=20, segment_steps=5)
    assert not is_boundary(Position(epoch=2, offset=60, step=26), first_step=20, segment_steps=5)
    assert not is_boundary(Position(epoch=2, offset=50, step=25), first_step=20, segment_steps=None)


def test_a_worker_number_that_is_not_of_the_generation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        share(epoch_order(10, 0, 0), 4, 0, 2, 2)
