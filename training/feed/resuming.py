"""A rank's request to resume an epoch, with as many ranks as before or another number: NAME.resume.json.

The program counts the records that its model was trained on, for each rank, and stores the counts with the model. So
records that a rank had only read ahead when it was killed, or trained on after the checkpoint, are delivered again, but
no other records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from dyntrain.training.feed.dealing import Piece, Position, Stream, dealt_anew, remaining_pieces
from dyntrain.training.feed.feeder import Read, detected_format, parts
from dyntrain.training.feed.fifos import RESUME
from dyntrain.training.feed.frames import end_of
from dyntrain.training.feed.listing import in_parallel
from dyntrain.training.feed.places import ChannelError, S3Object


class Resume(NamedTuple):
    """A resume request.

    `records` has a tuple for each set of ranks that the epoch has had so far: how many records each rank trained on.
    `objects` is a digest of the channel's objects, "" if not known.
    """

    epoch: int = 0
    ranks: int = 1
    records: tuple[tuple[int, ...], ...] = ()
    objects: str = ""

    def text(self) -> str:
        """The JSON text that the rank reads and stores with its model."""
        return json.dumps(self._asdict()) + "\n"


def resume_of(name: str, content: bytes) -> Resume:
    """Parse a resume request. Raises ChannelError."""
    try:
        fields: Any = json.loads(content)
        resume = Resume(**{**fields, "records": tuple(map(tuple, fields.get("records", ())))})
    except (ValueError, TypeError, AttributeError) as error:
        raise ChannelError(f"{name}{RESUME} is not as in CHANNELS.md: {error}") from error
    numbers = [resume.epoch, resume.ranks, *(count for counts in resume.records for count in counts)]
    if not all(type(number) is int and number >= 0 for number in numbers) or not all((resume.ranks, *resume.records)):
        raise ChannelError(f"{name}{RESUME}: epoch, ranks and records are whole numbers, records one for each rank")
    return resume


def digest_of(objects: Sequence[S3Object]) -> str:
    """A digest of the objects, to detect changes since an epoch began."""
    return hashlib.sha256(json.dumps([astuple(source) for source in objects]).encode()).hexdigest()[:16]


def dealt_after(first: list[list[Piece]], resume: Resume, kind: str, reader: Callable[[], Read]) -> list[list[Piece]]:
    """Deal the remaining data of an epoch into one stream for each rank.

    `first` are the streams of the epoch's first ranks. `reader` makes a reading function for one thread. Raises
    ChannelError if a rank's count exceeds its stream.
    """
    streams = first
    for counts, ranks in zip(resume.records, [*map(len, resume.records[1:]), resume.ranks]):  # noqa: B905  # Python 3.9
        places = in_parallel(lambda pair: place_of(reader(), *pair, kind), list(zip(streams, counts)))  # noqa: B905
        for rank, (_, missing_records) in enumerate(places):
            if missing_records:
                raise ChannelError(
                    f"epoch {resume.epoch}: rank {rank} cannot have trained on {counts[rank]} records: it "
                    f"has {counts[rank] - missing_records}; does the checkpoint belong to this data?"
                )
        streams = dealt_anew(remaining_pieces(streams, [place for place, _ in places]), ranks)
    return streams


def place_of(read: Read, stream: Stream, records: int, kind: str) -> tuple[Position, int]:
    """The position after a stream's first `records` records, and the number of missing records. Raises ChannelError."""
    for index, piece in enumerate(stream):
        if not records:
            return Position(index), 0
        kind, head = detected_format(read, piece, kind)
        record, at = piece.record, piece.at
        for part in parts(read, piece, head, kind, None):
            if records < part.record - record:
                return Position(index, record + records, at + end_of(kind, bytes(part.data), records)), 0
            records -= part.record - record
            record, at = part.record, part.at
            if not records and at < piece.source.size:
                return Position(index, record, at), 0
    return Position(len(stream)), records
