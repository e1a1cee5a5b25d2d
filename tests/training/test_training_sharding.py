"""If these break, samples are trained on twice or never."""

from __future__ import annotations

import numpy as np
import pytest
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import after_step, batch_size, epoch_order, is_boundary, share
from dyntrain.training.sampling.shares import Shares
from hypothesis import given, settings
from hypothesis import strategies as st

START = Position(epoch=0, offset=0, step=0)


@settings(deadline=None)
@given(samples=st.integers(1, 300), global_batch=st.integers(1, 80), seed=st.integers(0, 99), data=st.data())
def test_every_index_is_taken_once_an_epoch_whatever_the_membership_does(
    samples: int, global_batch: int, seed: int, data: st.DataObject
) -> None:
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


@settings(deadline=None)
@given(samples=st.integers(1, 1000), seed=st.integers(0, 2**31), epoch=st.integers(0, 500))
def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone(samples: int, seed: int, epoch: int) -> None:
    assert np.array_equal(epoch_order(samples, seed, epoch), epoch_order(samples, seed, epoch))


def test_orders_of_different_epochs_differ() -> None:
    assert not np.array_equal(epoch_order(100, 0, 0), epoch_order(100, 0, 1))


def test_a_job_resumed_under_another_numpy_sees_the_order_it_began_with() -> None:
    assert epoch_order(8, 0, 0).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]


@settings(deadline=None)
@given(samples=st.integers(1, 200), global_batch=st.integers(1, 50))
def test_an_epoch_ends_after_as_many_steps_as_batches(samples: int, global_batch: int) -> None:
    position, steps = START, 0
    while position.epoch == 0:
        position, steps = after_step(position, samples, global_batch), steps + 1
    assert steps == -(-samples // global_batch)
    assert position == Position(epoch=1, offset=0, step=steps)


def test_boundaries_are_the_ends_of_epochs_and_of_segments() -> None:
    assert not is_boundary(Position(epoch=2, offset=0, step=20), first_step=20, segment_steps=5), (
        "the generation just began here"
    )
    assert is_boundary(Position(epoch=3, offset=0, step=33), first_step=20, segment_steps=None)
    assert is_boundary(Position(epoch=2, offset=50, step=25), first_step=20, segment_steps=5)
    assert not is_boundary(Position(epoch=2, offset=60, step=26), first_step=20, segment_steps=5)
    assert not is_boundary(Position(epoch=2, offset=50, step=25), first_step=20, segment_steps=None)


def test_a_worker_number_that_is_not_of_the_generation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        share(epoch_order(10, 0, 0), 4, 0, 2, 2)


@settings(deadline=None)
@given(
    shards=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    lanes=st.integers(1, 20),
    step=st.integers(1, 80),
    seed=st.integers(0, 9),
)
def test_shards_in_sequence_take_every_sample_once_an_epoch(
    shards: list[int], lanes: int, step: int, seed: int
) -> None:
    order = ShardOrder(tuple(shards), lanes)
    assert sorted(order.epoch(seed, 3, step).tolist()) == list(range(sum(shards)))


@pytest.mark.parametrize("batching", [FixedGlobal(32), PerWorker(8)], ids=str)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_worker_reads_each_shard_of_its_lanes_from_one_record_to_the_next(
    batching: FixedGlobal | PerWorker, workers: int
) -> None:
    """Else readahead is of no use, and a file on slow storage is fetched once for each worker."""
    shards = Shares(1200, 1, 7, batching, ShardOrder((300,) * 4, 4))
    full = 1200 // 32 * 32  # what is left over after whole steps is read by whoever has its turn
    readers: dict[tuple[int, int], list[int]] = {}
    for number in range(workers):
        at = START
        while at.epoch == 0 and at.offset < full:
            for index in shards.take(at, number, workers)[0].tolist():
                readers.setdefault((number, index // 300), []).append(index)
            at = shards.after(at, workers)
    assert len(readers) == 4, "each shard has one reader"
    for read in readers.values():
        assert read == list(range(read[0], read[0] + len(read)))
        assert len(read) > 250


def test_shards_come_together_with_others_in_another_epoch() -> None:
    order = ShardOrder((10,) * 8, 2)
    firsts = {tuple(order.epoch(0, epoch, 4)[:4].tolist()) for epoch in range(6)}
    assert len(firsts) > 3
