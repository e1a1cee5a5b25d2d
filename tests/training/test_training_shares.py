"""Laws of who takes what: each sample of a step once whatever the membership, and where that may change."""

from __future__ import annotations

import numpy as np
import pytest
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import FixedGlobal, PerWorker, Ramp, WorkerRate
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import is_boundary, parts, share
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.sampling.statistics import averages_of
from dyntrain.training.sampling.whole import whole
from hypothesis import given
from hypothesis import strategies as st

crowds = st.integers(1, 7)


def at(step: int, offset: int | None = None, epoch: int = 0) -> Position:
    return Position(epoch=epoch, offset=step if offset is None else offset, step=step)


@given(batch=st.integers(1, 12), workers=crowds, begins=st.none() | st.integers(0, 3), group=st.integers(1, 3))
def test_every_sample_of_a_step_is_one_workers_also_where_shares_are_made_unlike(
    batch: int, workers: int, begins: int | None, group: int
) -> None:
    """In the steps in which it is found out what a script's numbers mean: no two that it may mean are alike there."""
    shares = Shares(5 * batch + 1, 2, 0, FixedGlobal(batch), begins=begins, group=group)
    position = at(0)
    while position.epoch == 0:
        size = shares.size(position, workers)
        divided = [shares.divide_batch(position, number, workers) for number in range(workers)]
        trained = [rows.tolist() for _, rows, spectates in divided if not spectates]
        assert [row for rows in trained for row in rows] == list(range(size))
        assert all(rows.tolist() == [0] for _, rows, spectates in divided if spectates), "a sample to go through"
        sizes = [0 if spectates else len(rows) for _, rows, spectates in divided]
        takers = min(size, workers)
        tries = begins is not None and (position.step == begins or position.offset == 0)
        ends_first = begins is not None and group > 1 and position.step == begins + group - 1
        assert shares.is_first_step(position) == tries
        if takers > 1 and size % takers == 0 and (tries or ends_first):
            even, one = size // takers, -1 if ends_first else 1
            assert sizes == [even + one, *[even] * (takers - 2), even - one, *[0] * (workers - takers)]
        else:
            assert max(sizes) - min(sizes) <= 1
        position = shares.after(position, workers)


@given(batch=st.integers(1, 9), workers=crowds, begins=st.none() | st.integers(0, 3), group=st.integers(1, 3))
def test_with_a_batch_for_each_worker_nobody_has_more_than_its_memory_is_sized_for(
    batch: int, workers: int, begins: int | None, group: int
) -> None:
    shares = Shares(50, 1, 0, PerWorker(batch), begins=begins, group=group)
    position = at(0)
    while position.epoch == 0:
        assert max(len(shares.take(position, number, workers)[0]) for number in range(workers)) <= batch
        position = shares.after(position, workers)


@given(batch=st.integers(1, 6), workers=crowds, full=st.integers(1, 9), more=st.integers(1, 5))
def test_who_discards_short_batches_has_whole_ones_only_and_spectates_with_one(
    batch: int, workers: int, full: int, more: int
) -> None:
    """Its script is written for them: a shape of its own, a label for each place."""
    shares = Shares(full * batch, 1, 0, PerWorker(batch), drawn_from=full * batch + more)
    position, seen = at(0), []
    while position.epoch == 0:
        for number in range(workers):
            taken, spectates = shares.take(position, number, workers)
            assert len(taken) == batch
            seen += [] if spectates else taken.tolist()
        position = shares.after(position, workers)
    assert len(set(seen)) == len(seen) == full * batch


def test_a_batch_for_each_worker_that_keeps_its_rest_is_cut_anywhere() -> None:
    shares = Shares(7, 1, 0, PerWorker(4))
    assert [len(shares.take(at(0), number, 3)[0]) for number in range(3)] == [2, 2, 3]


@pytest.mark.parametrize("number", [-1, 2, 3])
def test_no_share_is_cut_for_a_number_that_nobody_has(number: int) -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        share(np.arange(10), 4, 0, number, 2)


@given(
    first=st.integers(0, 9),
    steps=st.integers(0, 20),
    segment=st.none() | st.integers(1, 6),
    within=st.integers(1, 3),
    offset=st.integers(0, 3),
)
def test_membership_changes_at_an_epochs_end_and_after_each_whole_segment_and_nowhere_else(
    first: int, steps: int, segment: int | None, within: int, offset: int
) -> None:
    """A worker that takes another step for a boundary waits for the others for ever. A generation is not left where
    it has just begun.
    """
    boundary = is_boundary(at(first + steps, offset), first, segment, within)
    if offset == 0:
        assert boundary == (steps > 0)
    elif segment is None:
        assert not boundary
    else:  # one of the last `within` steps had made a whole number of segments
        whole_ones = [back for back in range(min(within, segment)) if steps >= back and (steps - back) % segment == 0]
        assert boundary == any(steps - back >= segment for back in whole_ones)


@given(count=st.integers(1, 40), most=st.none() | st.integers(1, 12))
def test_a_share_in_parts_is_the_share_and_no_part_is_too_large(count: int, most: int | None) -> None:
    """The bound is what fits into the device's memory."""
    cut = parts(np.arange(count), most)
    assert np.concatenate(cut).tolist() == list(range(count))
    assert all(1 <= len(part) <= (most or count) for part in cut)
    assert len(cut) == (1 if most is None else -(-count // most)), "each costs a pass through the net"


@given(shards=st.lists(st.integers(1, 9), min_size=2, max_size=6), seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_shards_are_read_one_whole_after_another_where_there_is_one_lane(
    shards: list[int], seed: int, epoch: int
) -> None:
    order = ShardOrder(tuple(shards), 1).epoch(seed, epoch, 3).tolist()
    ends = np.cumsum(shards)
    rows = [list(range(end - size, end)) for size, end in zip(shards, ends, strict=True)]
    while order:
        row = next(row for row in rows if row[0] == order[0])
        assert order[: len(row)] == row
        order = order[len(row) :]


def test_more_lanes_than_a_step_has_samples_are_as_many_as_it_has() -> None:
    assert ShardOrder((6, 6, 6), 9).epoch(1, 0, 2).tolist() == ShardOrder((6, 6, 6), 2).epoch(1, 0, 2).tolist()


@pytest.mark.parametrize(("shards", "lanes"), [((), 1), ((3, 0), 1), ((3, 2), 0)])
def test_a_dataset_of_empty_shards_is_refused(shards: tuple[int, ...], lanes: int) -> None:
    with pytest.raises(ValueError, match="give at least one, and no empty shard"):
        ShardOrder(shards, lanes)


def test_shards_of_other_lengths_are_said_to_be_others() -> None:
    """What two workers must have in common."""
    texts = {str(ShardOrder(shards, lanes)) for shards in ((3, 2), (2, 3), (32,)) for lanes in (1, 2)}
    assert len(texts) == 6


# ---- rates


def test_a_ramp_has_its_ends_where_it_says() -> None:
    ramp = Ramp(1.0, 3.0, 100, 40)
    assert [ramp.factor(at) for at in (0, 99, 100, 110, 120, 139, 140, 141)] == pytest.approx(
        [1.0, 1.0, 1.0, 1.5, 2.0, 2.95, 3.0, 3.0]
    )
    assert ramp.towards(3.0, 120, 7) is ramp, "a change that leaves as many workers begins nothing anew"
    assert ramp.towards(1.0, 120, 10) == Ramp(2.0, 1.0, 120, 10)
    assert Ramp(1.0, 3.0, 100, 0).factor(100) == 3.0


def test_a_rate_that_has_travelled_goes_on_as_the_one_that_it_was() -> None:
    rate = WorkerRate(8).after(100).with_goal(3.0, 400).after(60)
    travelled = WorkerRate.of_numbers(rate.numbers)
    assert travelled == rate
    assert travelled.after(50) == rate.after(50)
    assert rate.updates == 20
    assert rate.factor == pytest.approx(1.3), "of the update that ends there"


def test_the_workers_that_a_rate_is_for_are_said_once() -> None:
    assert PerWorker(4).of_size(3).meant_for == 3
    assert PerWorker(4, 3).of_size(3).meant_for == 3
    assert PerWorker(4, 2).of_size(1).meant_for == 2
    assert PerWorker(4).meant_for == 1
    assert PerWorker(4, 2).rate_factor(6) == 3.0
    with pytest.raises(ValueError, match="both say for how many workers"):
        PerWorker(4, 2).of_size(3)
    assert PerWorker(64.0, ramp=0).ramp == 0  # type: ignore[arg-type]
    assert (
        len({str(PerWorker(4, base, ramp, scaled)) for base in (1, 2) for ramp in (None, 9) for scaled in (0, 1)}) == 8
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "3", np.array([1, 2]), float("nan"), float("inf")])
def test_what_is_no_whole_number_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(ValueError, match=r"batch=.*must be a whole number, at least 1"):
        whole("batch", value)


def test_whole_numbers_of_any_kind_are_taken() -> None:
    assert [whole("batch", value) for value in (1, 64.0, np.int32(3), np.float64(8), np.array(5))] == [1, 64, 3, 8, 5]
    assert whole("start", 0, 0) == 0


def test_variances_of_sums_are_never_below_nothing() -> None:
    """By rounding: BatchNorm would take the root of it."""
    result = averages_of(np.array([1.0, 3.0, 9.0 - 1e-9]))
    assert result is not None
    assert result[1].tolist() == [0.0]
