"""By which number an epoch's order is drawn: the one that the script knows it by, whichever loop of the job it is in
and wherever that began. Drawn by another, a job that is resumed at epoch 30 would see the orders of its first 30 epochs
again, and two workers could train on the same samples of a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, epoch_order
from dyntrain.training.sampling.shares import ORDERS_KEPT, Excerpt, Shares
from dyntrain.training.worker.loop.loop_config import LoopConfig
from hypothesis import given
from hypothesis import strategies as st

starts, bases, crowds, seeds = st.integers(0, 7), st.integers(0, 7), st.integers(1, 4), st.integers(0, 99)


def at(epoch: int, offset: int = 0, step: int = 0) -> Position:
    return Position(epoch=epoch, offset=offset, step=step)


def batches_of(number: int) -> list[Indices]:
    """As a script's sampler gives them: others in each epoch, of different sizes."""
    order = np.random.default_rng(number).permutation(10)
    return [order[:3], order[3 : 5 + number % 3], order[5 + number % 3 :]]


def config(start: int, base: int, seed: int, **more: Any) -> LoopConfig:
    return LoopConfig(epochs=3, start=start, base=base, samples=23, batching=FixedGlobal(5), seed=seed, **more)


def whole_epoch(shares: Shares, place: int, workers: int) -> list[int]:
    """All samples of the epoch at that place of the job, in the order in which they are trained on."""
    position, samples = at(place), list[int]()
    while position.epoch == place:
        samples += [i for number in range(workers) for i in shares.take(position, number, workers)[0].tolist()]
        position = shares.after(position, workers)
    return samples


class Sampler:
    """In the place of a `SampledBatches`."""

    def __init__(self) -> None:
        self.asked_numbers: list[int] = []

    def batches(self, number: int) -> list[Indices]:
        self.asked_numbers.append(number)
        return batches_of(number)


@given(start=starts, base=bases, seed=seeds)
def test_a_loop_that_begins_at_an_epoch_draws_that_ones_order_and_those_after_it(
    start: int, base: int, seed: int
) -> None:
    """Whatever loops there were before; counted over the job, its epochs begin with number `base`."""
    shares = config(start, base, seed).shares(None)
    assert shares.epochs == base + 3
    for k in range(3):
        assert whole_epoch(shares, base + k, 1) == epoch_order(23, seed, start + k).tolist()


@given(start=starts, base=bases, seed=seeds, lanes=st.integers(1, 3))
def test_shards_in_sequence_and_what_is_left_out_follow_the_same_number(
    start: int, base: int, seed: int, lanes: int
) -> None:
    sequence = ShardOrder((7, 9, 5, 2), lanes)
    ordered, some = config(start, base, seed).shares(sequence), config(start, base, seed, drawn_from=40).shares(None)
    for k in range(3):
        assert whole_epoch(ordered, base + k, 1) == sequence.epoch(seed, start + k, 5).tolist()
        assert whole_epoch(some, base + k, 1) == epoch_order(40, seed, start + k)[:23].tolist()


@given(start=starts, base=bases, workers=crowds)
def test_a_scripts_own_sampler_is_gone_through_for_the_same_number(start: int, base: int, workers: int) -> None:
    sampler: Any = Sampler()
    shares = Shares(10, base + 3, 0, FixedGlobal(5), drawn=sampler.batches, shift=config(start, base, 0).epoch_shift)
    for k in range(3):
        position = at(base + k)
        for number, batch in enumerate(batches_of(start + k)):
            assert shares.batch_number(position, workers) == number
            assert shares.size(position, workers) == len(batch)
            assert shares.divide_batch(position, 0, workers)[0].tolist() == batch.tolist()
            position = shares.after(position, workers)
        assert position.epoch == base + k + 1
    assert sampler.asked_numbers == [start, start + 1, start + 2], "each once: a pass may take long"


@given(start=starts, base=bases, workers=crowds, data=st.data())
def test_what_is_loaded_ahead_is_what_is_trained_on_later(
    start: int, base: int, workers: int, data: st.DataObject
) -> None:
    """With the script's number of the epoch, by which augmentation draws; from anywhere in the loop to its end."""
    number = data.draw(st.integers(0, workers - 1))
    shares = config(start, base, 3).shares(None)
    position = at(base)
    for _ in range(data.draw(st.integers(0, 14))):
        position = shares.after(position, workers)
    ahead = list(shares.steps_ahead(position, number, workers))
    assert len(ahead) == 15 - position.step, "to the end of the loop, and no further"
    for epoch, batch, rows in ahead:
        assert epoch == start + position.epoch - base
        expected, own, _ = shares.divide_batch(position, number, workers)
        assert (batch.tolist(), rows.tolist()) == (expected.tolist(), own.tolist())
        position = shares.after(position, workers)


@given(start=starts, seed=seeds, visits=st.lists(st.integers(0, 6), max_size=12))
def test_an_order_is_the_same_however_often_and_late_it_is_asked_for(start: int, seed: int, visits: list[int]) -> None:
    """A lost step leads back into the epoch before, what is loaded ahead into the next one; few orders are kept."""
    shares = Shares(12, 9, seed, FixedGlobal(4), shift=start)
    for place in visits:
        assert whole_epoch(shares, place, 2) == epoch_order(12, seed, start + place).tolist()
        assert len(shares._orders) <= ORDERS_KEPT


def test_the_epoch_that_is_trained_stays_while_the_next_one_is_loaded_ahead() -> None:
    """Each step would draw both anew: for a dataset of millions that takes longer than the step."""
    sampler: Any = Sampler()
    shares = Shares(10, 9, 0, FixedGlobal(5), drawn=sampler.batches, shift=4)
    for place in range(3):
        for _ in range(3):
            shares.size(at(place), 1)
            shares.size(at(place + 1), 1)
    assert sampler.asked_numbers == [4, 5, 6, 7]


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_orders_of_other_seeds_and_epochs_are_others(seed: int, epoch: int, other_seed: int, other: int) -> None:
    """Also where the two numbers are exchanged, or add up to the same."""
    same = (seed, epoch) == (other_seed, other)
    assert np.array_equal(epoch_order(100, seed, epoch), epoch_order(100, other_seed, other)) == same


def test_an_excerpt_goes_on_as_what_it_is_of() -> None:
    """What is tried before the first step is tried as of that epoch."""
    sampler: Any = Sampler()
    of = Shares(10, 9, 5, PerWorker(4), None, 12, sampler.batches, 3, 7, 2)
    batch, rows = np.arange(4), np.arange(2)
    excerpt = Excerpt(of, batch, rows)
    for name in (
        "samples",
        "epochs",
        "seed",
        "batching",
        "sequence",
        "drawn_from",
        "drawn",
        "shift",
        "begins",
        "group",
    ):
        assert getattr(excerpt, name) == getattr(of, name), name
    assert (excerpt.size(at(1), 3), excerpt.divide_batch(at(1), 2, 3)) == (4, (batch, rows, False))
