"""Which objects each rank reads in an epoch, and what is left of it when the ranks change. Pure.

Whole objects are dealt to ranks, with a seed in another order each epoch. All hosts compute the same result from the
same list. If the ranks change in the middle of an object, some rank reads the rest, from the next record on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from dyntrain.training.feed.places import ChannelError, S3Object

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
MOST_OF_SAGEMAKER = 20  # channels in a job
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
    """How far a rank has trained on its stream: `pieces` whole ones, and the next one up to `record` at byte `at`."""

    pieces: int
    record: int = 0
    at: int = 0


Stream = Sequence[Piece]


def without_indices(objects: Sequence[S3Object]) -> list[S3Object]:
    """Leave out each `X.idx` beside an `X.rec`: it holds the positions of the records, and is no data."""
    keys = {one.key for one in objects}
    return [one for one in objects if not (one.key.endswith(".idx") and f"{one.key[:-4]}.rec" in keys)]


def in_order(objects: Sequence[S3Object], seed: int | None, epoch: int) -> list[S3Object]:
    """The objects in the order of an epoch: without a seed the list's own, else another one each epoch.

    The order depends on seed, epoch and objects only, not on Python's version or the host.
    """
    if seed is None:
        return list(objects)

    def drawn(one: S3Object) -> bytes:
        return hashlib.sha256(f"{seed}\n{epoch}\n{one.bucket}\n{one.key}".encode()).digest()

    return sorted(objects, key=drawn)


def shards_of(objects: Sequence[S3Object], prefix: str) -> list[list[S3Object]] | None:
    """The shards by rank, if all objects lie in PREFIX/0/, PREFIX/1/, ... without a gap; else None."""
    shards: dict[int, list[S3Object]] = {}
    for one in objects:
        matched = _SHARD.match(one.key[len(prefix) :].lstrip("/"))
        if matched is None:
            return None
        shards.setdefault(int(matched[1]), []).append(one)
    return [shards[rank] for rank in range(len(shards))] if shards and max(shards) == len(shards) - 1 else None


def dealt(objects: Sequence[S3Object], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """Deal the objects into one stream for each rank, of about equal size in bytes."""
    return dealt_anew([Piece(one) for one in in_order(objects, seed, epoch)], ranks)


def of_shards(shards: Sequence[Sequence[S3Object]], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """The streams of ranks that read shards: rank r reads shard r and every `ranks`-th one after it."""
    return [
        [Piece(one) for shard in shards[rank::ranks] for one in in_order(shard, seed, epoch)] for rank in range(ranks)
    ]


def streams_of(
    channel: str, objects: Sequence[S3Object], prefix: str, ranks: int, seed: int | None, epoch: int
) -> list[list[Piece]]:
    """The streams of the ranks that begin an epoch: of shards if the channel has them, else of dealt objects.

    Raises ChannelError if there are fewer shards or objects than ranks.
    """
    shards = shards_of(objects, prefix)
    if shards is not None and len(shards) > 1:
        enough(channel, len(shards), "shards", ranks)
        return of_shards(shards, ranks, seed, epoch)
    enough(channel, len(objects), "objects", ranks)
    return dealt(objects, ranks, seed, epoch)


def enough(channel: str, parts: int, kind: str, ranks: int) -> None:
    """Check that each rank has something to read. Raises ChannelError for fewer shards or objects than ranks."""
    if parts < ranks:
        raise ChannelError(
            f"channel {channel}: {parts} {kind} for {ranks} ranks, of which rank {parts} would read nothing; write at "
            f"least {ranks}"
        )


def left(streams: Sequence[Stream], positions: Sequence[Position]) -> list[Piece]:
    """The pieces that no rank has trained on, in an order that is the same on all hosts.

    Raises ValueError for a position that does not exist in its stream.
    """
    if len(streams) != len(positions):
        raise ValueError(f"{len(positions)} positions of {len(streams)} ranks")
    begun: list[Piece] = []
    untouched: list[Piece] = []
    for stream, position in zip(streams, positions):  # noqa: B905  # Python 3.9
        if position.pieces > len(stream):
            raise ValueError(f"position {position} is beyond the {len(stream)} pieces of its stream")
        rest = list(stream[position.pieces :])
        if position.record or position.at:
            if not rest or position.record < rest[0].record or position.at < rest[0].at:
                raise ValueError(f"position {position} is before its piece, or behind the last")
            begun.append(rest.pop(0)._replace(record=position.record, at=position.at))
        untouched += rest
    return [piece for piece in begun if piece.size] + untouched


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
    if number <= MOST_OF_SAGEMAKER:
        return ""
    return (
        f"{number} pipe channels: SageMaker takes at most {MOST_OF_SAGEMAKER} a job; dyntrain takes more, but the job "
        "no longer runs there"
    )
