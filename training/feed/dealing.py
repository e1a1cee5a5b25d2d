"""Division of an epoch's objects among ranks, and of the remaining data when the ranks change. Pure.

Whole objects are dealt to ranks; with a seed, in another order each epoch. All hosts compute the same result from the
same list. If the ranks change in the middle of an object, one of the new ranks continues at the next record.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from dyntrain.training.feed.places import ChannelError, S3Object

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
SAGEMAKER_CHANNELS = 20  # channels in a job
_SHARD = re.compile(r"(0|[1-9][0-9]{0,4})/.")


class Piece(NamedTuple):
    """The part of an object from record `record` on, which begins at byte `at`."""

    source: S3Object
    record: int = 0
    at: int = 0

    @property
    def size(self) -> int:
        """The piece's size in bytes."""
        return self.source.size - self.at


class Position(NamedTuple):
    """A rank's position in its stream: after `pieces` whole pieces, at `record` of the next piece, at byte `at`."""

    pieces: int
    record: int = 0
    at: int = 0


Stream = Sequence[Piece]


def without_indices(objects: Sequence[S3Object]) -> list[S3Object]:
    """Leave out each index `X.idx` of an `X.rec`: an index has the positions of the records, and no data."""
    keys = {source.key for source in objects}
    return [source for source in objects if not (source.key.endswith(".idx") and f"{source.key[:-4]}.rec" in keys)]


def in_order(objects: Sequence[S3Object], seed: int | None, epoch: int) -> list[S3Object]:
    """The objects in the order of an epoch: without a seed the list's order, else another order each epoch.

    The order depends on seed, epoch and objects only, not on Python's version or the host.
    """
    if seed is None:
        return list(objects)

    def drawn(source: S3Object) -> bytes:
        return hashlib.sha256(f"{seed}\n{epoch}\n{source.bucket}\n{source.key}".encode()).digest()

    return sorted(objects, key=drawn)


def shards_of(objects: Sequence[S3Object], prefix: str) -> list[list[S3Object]] | None:
    """The shards by rank, if all objects lie in PREFIX/0/, PREFIX/1/, ... without a gap; else None."""
    shards: dict[int, list[S3Object]] = {}
    for source in objects:
        matched = _SHARD.match(source.key[len(prefix) :].lstrip("/"))
        if matched is None:
            return None
        shards.setdefault(int(matched[1]), []).append(source)
    return [shards[rank] for rank in range(len(shards))] if shards and max(shards) == len(shards) - 1 else None


def dealt(objects: Sequence[S3Object], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """Deal the objects into one stream for each rank, of about equal size in bytes."""
    return dealt_anew([Piece(source) for source in in_order(objects, seed, epoch)], ranks)


def of_shards(shards: Sequence[Sequence[S3Object]], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """The streams of ranks that read shards: rank r reads shard r and every `ranks`-th one after it."""
    return [
        [Piece(source) for shard in shards[rank::ranks] for source in in_order(shard, seed, epoch)]
        for rank in range(ranks)
    ]


def streams_of(
    channel: str, objects: Sequence[S3Object], prefix: str, ranks: int, seed: int | None, epoch: int
) -> list[list[Piece]]:
    """The streams of the ranks that begin an epoch: of shards if the channel has them, else of dealt objects.

    Raises ChannelError if there are fewer shards or objects than ranks.
    """
    shards = shards_of(objects, prefix)
    if shards is not None and len(shards) > 1:
        require_enough(channel, len(shards), "shards", ranks)
        return of_shards(shards, ranks, seed, epoch)
    require_enough(channel, len(objects), "objects", ranks)
    return dealt(objects, ranks, seed, epoch)


def require_enough(channel: str, parts: int, kind: str, ranks: int) -> None:
    """Check that each rank has data to read. Raises ChannelError for fewer shards or objects than ranks."""
    if parts < ranks:
        raise ChannelError(
            f"channel {channel}: {parts} {kind} for {ranks} ranks: rank {parts} would read nothing; write at "
            f"least {ranks} {kind}"
        )


def remaining_pieces(streams: Sequence[Stream], positions: Sequence[Position]) -> list[Piece]:
    """The pieces that no rank has trained on, in an order that is the same on all hosts.

    Raises ValueError for a position that does not exist in its stream.
    """
    if len(streams) != len(positions):
        raise ValueError(f"{len(positions)} positions of {len(streams)} ranks")
    begun_pieces: list[Piece] = []
    untouched: list[Piece] = []
    for stream, position in zip(streams, positions):  # noqa: B905  # Python 3.9
        if position.pieces > len(stream):
            raise ValueError(f"position {position} is beyond the {len(stream)} pieces of its stream")
        unread = list(stream[position.pieces :])
        if position.record or position.at:
            if not unread or position.record < unread[0].record or position.at < unread[0].at:
                raise ValueError(f"position {position} is before its piece, or after the last")
            begun_pieces.append(unread.pop(0)._replace(record=position.record, at=position.at))
        untouched += unread
    return [piece for piece in begun_pieces if piece.size] + untouched


def dealt_anew(pieces: Sequence[Piece], ranks: int) -> list[list[Piece]]:
    """Deal pieces into one stream for each rank: each piece goes to the rank with the fewest bytes so far."""
    streams: list[list[Piece]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for piece in pieces:
        rank = sizes.index(min(sizes))
        streams[rank].append(piece)
        sizes[rank] += piece.size
    return streams


def many_channels(number: int) -> str:
    """A warning if there are more channels than SageMaker accepts; "" otherwise."""
    if number <= SAGEMAKER_CHANNELS:
        return ""
    return (
        f"{number} pipe channels: SageMaker accepts at most {SAGEMAKER_CHANNELS} a job; dyntrain accepts more, but "
        "such a job does not run on SageMaker"
    )
