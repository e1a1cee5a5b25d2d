"""Which objects each rank reads in an epoch, and what is left of it when the ranks change. Pure.

Objects are dealt whole, in an order that a seed gives anew for each epoch. All hosts come to the same from the same
list. Of an object that was begun when the ranks change, another rank reads the rest, from its next record on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from dyntrain.training.feed.places import ChannelError, S3Object

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
MOST_OF_SAGEMAKER = 20  # channels of a job
_SHARD = re.compile(r"(0|[1-9][0-9]{0,4})/.")


class Piece(NamedTuple):
    """An object from its record `record` on, which begins at byte `at`."""

    source: S3Object
    record: int = 0
    at: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return self.source.size - self.at


class Position(NamedTuple):
    """How far a rank has trained on its stream: so many pieces whole, and the next one up to a record, at a byte."""

    pieces: int
    record: int = 0
    at: int = 0


Stream = Sequence[Piece]


def without_indices(objects: Sequence[S3Object]) -> list[S3Object]:
    """`X.idx` beside `X.rec` says where its records begin, and is no data."""
    keys = {one.key for one in objects}
    return [one for one in objects if not (one.key.endswith(".idx") and f"{one.key[:-4]}.rec" in keys)]


def in_order(objects: Sequence[S3Object], seed: int | None, epoch: int) -> list[S3Object]:
    """Of an epoch. Without a seed the list's own, else another one each epoch, which is that of these objects alone:
    neither Python's version nor the host matters.
    """
    if seed is None:
        return list(objects)

    def drawn(one: S3Object) -> bytes:
        return hashlib.sha256(f"{seed}\n{epoch}\n{one.bucket}\n{one.key}".encode()).digest()

    return sorted(objects, key=drawn)


def shards_of(objects: Sequence[S3Object], prefix: str) -> list[list[S3Object]] | None:
    """By rank, where all lie in PREFIX/0/, PREFIX/1/, ... without a gap; else None."""
    shards: dict[int, list[S3Object]] = {}
    for one in objects:
        matched = _SHARD.match(one.key[len(prefix) :].lstrip("/"))
        if matched is None:
            return None
        shards.setdefault(int(matched[1]), []).append(one)
    return [shards[rank] for rank in range(len(shards))] if shards and max(shards) == len(shards) - 1 else None


def dealt(objects: Sequence[S3Object], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """A stream for each rank, of about as many bytes."""
    return dealt_anew([Piece(one) for one in in_order(objects, seed, epoch)], ranks)


def of_shards(shards: Sequence[Sequence[S3Object]], ranks: int, seed: int | None, epoch: int) -> list[list[Piece]]:
    """Each rank its own shard, and of those beyond the ranks every so many-th."""
    return [
        [Piece(one) for shard in shards[rank::ranks] for one in in_order(shard, seed, epoch)] for rank in range(ranks)
    ]


def streams_of(
    channel: str, objects: Sequence[S3Object], prefix: str, ranks: int, seed: int | None, epoch: int
) -> list[list[Piece]]:
    """Of an epoch's first ranks: a shard each, where there are shards, else objects. Raises ChannelError."""
    shards = shards_of(objects, prefix)
    if shards is not None and len(shards) > 1:
        enough(channel, len(shards), "shards", ranks)
        return of_shards(shards, ranks, seed, epoch)
    enough(channel, len(objects), "objects", ranks)
    return dealt(objects, ranks, seed, epoch)


def enough(channel: str, parts: int, kind: str, ranks: int) -> None:
    """Raises ChannelError for fewer shards or objects than ranks, of which some would have nothing to read."""
    if parts < ranks:
        raise ChannelError(
            f"channel {channel}: {parts} {kind} for {ranks} ranks, of which rank {parts} would read nothing; write at "
            f"least {ranks}"
        )


def left(streams: Sequence[Stream], positions: Sequence[Position]) -> list[Piece]:
    """What nobody has trained on, in an order that all hosts come to. Raises ValueError for a position that is none of
    its stream.
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
    """A stream for each rank that there is now: each piece to the one that has the fewest bytes so far."""
    streams: list[list[Piece]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for piece in pieces:
        rank = sizes.index(min(sizes))
        streams[rank].append(piece)
        sizes[rank] += piece.size
    return streams


def many_channels(number: int) -> str:
    """A warning; "" for none."""
    if number <= MOST_OF_SAGEMAKER:
        return ""
    return (
        f"{number} pipe channels: SageMaker takes at most {MOST_OF_SAGEMAKER} a job; dyntrain takes more, but the job "
        "no longer runs there"
    )
