"""Divides an epoch's objects among ranks, and divides the remaining data anew when the number of ranks changes. Pure.

Each rank gets whole objects. With a seed, the objects are dealt to the ranks in a new order each epoch. All hosts
compute the same result from the same list of objects. If the ranks change while a rank is in the middle of an object, a
rank of the new set continues with the object's next record.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from dyntrain.training.feed.places import ChannelError, S3Object

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
SAGEMAKER_CHANNELS = 20  # SageMaker's limit for a job
_SHARD = re.compile(r"(0|[1-9][0-9]{0,4})/.")  # key below the prefix: number of the shard, then a name


class Piece(NamedTuple):
    """An object's records from number `record` on. Record number `record` begins at byte `offset` of the object."""

    source: S3Object
    record: int = 0  # number of the first record in the object
    offset: int = 0  # byte at which this record begins

    @property
    def size(self) -> int:  # in bytes
        """The piece's size in bytes."""
        return self.source.size - self.offset


class Position(NamedTuple):
    """A rank's position in its stream: after `pieces` whole pieces, at `record` (byte `offset`) of the next piece."""

    pieces: int  # number of whole pieces before the position
    record: int = 0  # number of the next record, if the piece has begun
    offset: int = 0  # byte at which this record begins


Stream = Sequence[Piece]


def without_indices(objects: Sequence[S3Object]) -> list[S3Object]:
    """Return the objects without the index `X.idx` of any `X.rec`, as an index contains no training data."""
    object_keys = {source.key for source in objects}
    return [
        source for source in objects if not (source.key.endswith(".idx") and f"{source.key[:-4]}.rec" in object_keys)
    ]


def objects_in_order(objects: Sequence[S3Object], seed: int | None, epoch: int) -> list[S3Object]:
    """Return the objects in an epoch's order: without `seed` in the given order, with `seed` in a new order each epoch.

    The order depends only on seed, epoch and objects, so all hosts and all versions of Python compute the same order.
    """
    if seed is None:
        return list(objects)

    def random_sort_key(source: S3Object) -> bytes:
        return hashlib.sha256(f"{seed}\n{epoch}\n{source.bucket}\n{source.key}".encode()).digest()

    return sorted(objects, key=random_sort_key)


def shards_of(objects: Sequence[S3Object], prefix: str) -> list[list[S3Object]] | None:
    """Return the objects of each shard, if all objects are in PREFIX/0/, PREFIX/1/, ... without a gap.

    Returns None if any object is elsewhere or a shard's number is missing.
    """
    shards: dict[int, list[S3Object]] = {}
    for source in objects:
        match = _SHARD.match(source.key[len(prefix) :].lstrip("/"))
        if match is None:
            return None
        shards.setdefault(int(match[1]), []).append(source)
    return [shards[rank] for rank in range(len(shards))] if shards and max(shards) == len(shards) - 1 else None


def deal_objects(objects: Sequence[S3Object], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """Deal the objects into one stream for each rank, so that the streams have about equal sizes in bytes."""
    return deal_pieces([Piece(source) for source in objects_in_order(objects, seed, epoch)], ranks)


def shard_streams(shards: Sequence[Sequence[S3Object]], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """Return the streams of ranks that read shards: rank r reads the shards r, r + `ranks`, r + 2 `ranks` and so on."""
    return [
        [Piece(source) for shard in shards[rank::ranks] for source in objects_in_order(shard, seed, epoch)]
        for rank in range(ranks)
    ]


def first_streams_of_epoch(
    channel: str, objects: Sequence[S3Object], prefix: str, ranks: int, seed: int | None, epoch: int
) -> list[list[Piece]]:
    """Return the streams of the ranks that begin an epoch: of whole shards if the channel has shards, else of objects.

    Raises ChannelError if the channel has fewer shards (or without shards fewer objects) than ranks.
    """
    shards = shards_of(objects, prefix)
    if shards is not None and len(shards) > 1:
        require_enough_parts(channel, len(shards), "shards", ranks)
        return shard_streams(shards, ranks, seed, epoch)
    require_enough_parts(channel, len(objects), "objects", ranks)
    return deal_objects(objects, ranks, seed, epoch)


def require_enough_parts(channel: str, part_count: int, part_name: str, ranks: int) -> None:
    """Check that each rank has data to read.

    Raises ChannelError if `part_count`, the number of shards or objects, is smaller than the number of ranks.
    """
    if part_count < ranks:
        raise ChannelError(
            f"channel {channel}: {part_count} {part_name} for {ranks} ranks: rank {part_count} would read nothing; "
            "write at "
            f"least {ranks} {part_name}"
        )


def remaining_pieces(streams: Sequence[Stream], positions: Sequence[Position]) -> list[Piece]:
    """Return the pieces that no rank has trained on, in an order that is the same on all hosts.

    Raises ValueError for a position that does not exist in its stream.
    """
    if len(streams) != len(positions):
        raise ValueError(f"{len(positions)} positions do not match {len(streams)} ranks' streams")
    begun_pieces: list[Piece] = []
    unbegun_pieces: list[Piece] = []
    for stream, position in zip(streams, positions):  # noqa: B905  # Python 3.9
        if position.pieces > len(stream):
            raise ValueError(f"position {position} is beyond the {len(stream)} pieces of its stream")
        unread_pieces = list(stream[position.pieces :])
        if position.record or position.offset:
            if (
                not unread_pieces
                or position.record < unread_pieces[0].record
                or position.offset < unread_pieces[0].offset
            ):
                raise ValueError(f"position {position} is before the start of its piece, or after the last piece")
            begun_pieces.append(unread_pieces.pop(0)._replace(record=position.record, offset=position.offset))
        unbegun_pieces += unread_pieces
    return [piece for piece in begun_pieces if piece.size] + unbegun_pieces


def deal_pieces(pieces: Sequence[Piece], ranks: int) -> list[list[Piece]]:
    """Deal pieces into one stream for each rank: each piece is given to the rank with the fewest bytes so far."""
    streams: list[list[Piece]] = [[] for _ in range(ranks)]
    stream_bytes = [0] * ranks
    for piece in pieces:
        rank = stream_bytes.index(min(stream_bytes))
        streams[rank].append(piece)
        stream_bytes[rank] += piece.size
    return streams


def too_many_channels_warning(pipe_channels: int) -> str:
    """Return a warning if the job has more pipe channels than SageMaker accepts, otherwise ""."""
    if pipe_channels <= SAGEMAKER_CHANNELS:
        return ""
    return (
        f"{pipe_channels} pipe channels: SageMaker accepts at most {SAGEMAKER_CHANNELS} a job; dyntrain accepts "
        "more, but "
        "such a job does not run on SageMaker"
    )
