"""Who reads which objects in an epoch.

What would break for a user: records that are trained on twice or never when ranks come and go, an order that is the
same each epoch, or one that hosts do not agree on; ranks that wait for ever because nobody has anything for them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from dyntrain.training.feed.dealing import (
    Piece,
    Position,
    deal_objects,
    deal_pieces,
    objects_in_order,
    remaining_pieces,
    require_enough_parts,
    shard_streams,
    shards_of,
    too_many_channels_warning,
    without_indices,
)
from dyntrain.training.feed.places import ChannelError, S3Object, manifest_of
from hypothesis import given
from hypothesis import strategies as st

FRAME = 10  # bytes of each record here


def objects(counts: list[int], below: str = "train/") -> list[S3Object]:
    return [S3Object("b", f"{below}{number:03d}", count * FRAME, '"1"') for number, count in enumerate(counts)]


def trained(stream: list[Piece], records: int) -> tuple[list[tuple[str, int]], Position]:
    """The first records of a stream, as a rank trains on them, and where it stands then."""
    seen: list[tuple[str, int]] = []
    for index, piece in enumerate(stream):
        for record in range(piece.record, piece.source.size // FRAME):
            if len(seen) == records:
                return seen, Position(index, record, record * FRAME)
            seen.append((piece.source.key, record))
    return seen, Position(len(stream))


@given(
    counts=st.lists(st.integers(0, 7), max_size=12),
    ranks=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.none() | st.integers(0, 2**40),
    draw=st.data(),
)
def test_each_record_is_read_once_an_epoch_whatever_the_ranks_do(
    counts: list[int], ranks: list[int], seed: int | None, draw: st.DataObject
) -> None:
    everything = objects(counts)
    audit: Counter[tuple[str, int]] = Counter()
    streams = deal_objects(everything, ranks[0], seed, 3)
    for number in [*ranks[1:], 0]:
        positions = []
        for stream in streams:
            most = sum(piece.size // FRAME for piece in stream)
            seen, position = trained(stream, draw.draw(st.integers(0, most)) if number else most)
            audit.update(seen)
            positions.append(position)
        rest = remaining_pieces(streams, positions)
        streams = deal_pieces(rest, number) if number else []
    assert not rest
    assert audit == {(one.key, record): 1 for one in everything for record in range(one.size // FRAME)}


def test_from_two_to_four_to_one() -> None:
    everything = objects([5, 5, 5, 5, 5, 5])
    two = deal_objects(everything, 2, None, 0)
    assert [[piece.source.key[-1] for piece in stream] for stream in two] == [["0", "2", "4"], ["1", "3", "5"]]
    rest = remaining_pieces(two, [Position(1, 2, 20), Position(0, 3, 30)])
    assert [(piece.source.key[-1], piece.record) for piece in rest] == [
        ("2", 2),
        ("1", 3),
        ("4", 0),
        ("3", 0),
        ("5", 0),
    ]
    four = deal_pieces(rest, 4)
    assert [[piece.source.key[-1] for piece in stream] for stream in four] == [["2"], ["1", "5"], ["4"], ["3"]]
    last = deal_pieces(remaining_pieces(four, [Position(1), Position(1, 1, 10), Position(0), Position(0, 0, 0)]), 1)
    assert [(piece.source.key[-1], piece.record) for piece in last[0]] == [("5", 1), ("4", 0), ("3", 0)]


@pytest.mark.parametrize(
    "position", [Position(2), Position(0, 1, 10), Position(1, 1, 10)], ids=["beyond", "before", "after the last"]
)
def test_a_position_that_is_none_is_refused(position: Position) -> None:
    """It would have records read twice, or not at all."""
    stream = [Piece(objects([5])[0], 2, 20)]
    with pytest.raises(ValueError, match="position"):
        remaining_pieces([stream], [position])
    with pytest.raises(ValueError, match="2 positions do not match 1 ranks' streams"):
        remaining_pieces([stream], [Position(0), Position(0)])


def test_a_seed_gives_another_order_each_epoch_and_the_same_one_everywhere() -> None:
    everything = objects([1] * 20)
    orders = [tuple(one.key for one in objects_in_order(everything, 234, epoch)) for epoch in range(4)]
    assert len(set(orders)) == 4
    assert orders[0] == tuple(one.key for one in objects_in_order(everything[::-1], 234, 0)), (
        "the listing's order is no matter"
    )
    assert [key[-3:] for key in orders[0][:4]] == ["009", "001", "010", "005"], "of every version and host"
    assert objects_in_order(everything, None, 5) == everything
    assert objects_in_order(everything, 235, 0) != objects_in_order(everything, 234, 0)


def test_a_shard_a_rank() -> None:
    objects = [S3Object("b", f"sets/train/{key}", 1, "e") for key in ("0/a", "0/b", "1/a", "10/a", "2/sub/a")]
    assert shards_of(objects, "sets/train/") is None, "3 to 9 are not there: these are no shards"
    shards = shards_of([one for one in objects if "/10/" not in one.key], "sets/train")
    assert shards is not None
    assert [[one.key[11:] for one in shard] for shard in shards] == [["0/a", "0/b"], ["1/a"], ["2/sub/a"]]
    assert shards_of([*objects[:2], S3Object("b", "sets/train/README", 1, "e")], "sets/train/") is None
    assert shards_of([], "x") is None
    three = shard_streams(shards, 3, None, 0)
    assert [[piece.source for piece in stream] for stream in three] == shards
    assert sorted(piece.source.key for stream in shard_streams(shards, 2, 7, 0) for piece in stream) == sorted(
        one.key for shard in shards for one in shard
    )


def test_indices_beside_records_are_no_data() -> None:
    objects = [S3Object("b", key, 1, "e") for key in ("a.idx", "a.rec", "lone.idx", "b.rec")]
    assert [one.key for one in without_indices(objects)] == ["a.rec", "lone.idx", "b.rec"]


def test_fewer_parts_than_ranks_are_named() -> None:
    require_enough_parts("train", 4, "shards", 4)
    with pytest.raises(ChannelError, match="channel train: 2 shards for 4 ranks: rank 2 would read nothing"):
        require_enough_parts("train", 2, "shards", 4)


def test_more_channels_than_sagemaker_takes_are_told_of() -> None:
    assert too_many_channels_warning(20) == ""
    assert "24 pipe channels: SageMaker accepts at most 20" in too_many_channels_warning(24)


def test_a_manifest_is_sagemakers() -> None:
    manifest = b'[{"prefix": "s3://data/sets/"}, "train/c", "a"]'
    assert manifest_of(manifest, "s3://m/x") == ("data", ["sets/train/c", "sets/a"])
    for wrong in (
        b"",
        b"[]",
        b"{}",
        b'[{"prefix": "s3://data/"}]',
        b'[{"prefix": 1}, "a"]',
        b'[{"prefix": "s3://d"}, 1]',
    ):
        with pytest.raises(ChannelError, match="s3://m/x is no manifest"):
            manifest_of(wrong, "s3://m/x")
