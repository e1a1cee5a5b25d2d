"""Handles NAME.resume.json, a rank's request to resume an epoch, also with another number of ranks than before.

The program counts the records that its model was trained on, for each rank, and stores the counts with the model. A
restarted rank gets only records that the stored model was not trained on. Records that a killed rank had only read
ahead, or had trained on after the model was stored, are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from dyntrain.training.feed.dealing import Piece, Position, Stream, deal_pieces, remaining_pieces
from dyntrain.training.feed.feeder import Reader, detected_format, read_parts
from dyntrain.training.feed.fifos import RESUME_SUFFIX
from dyntrain.training.feed.frames import end_of
from dyntrain.training.feed.listing import in_parallel
from dyntrain.training.feed.places import ChannelError, S3Object


class ResumeRequest(NamedTuple):
    """A resume request.

    `records` contains, for each set of ranks that the epoch had so far, the number of records that each rank trained
    on. `objects` is a digest of the channel's objects, or "" if the digest is unknown.
    """

    epoch: int = 0  # to resume
    ranks: int = 1  # number of ranks from now on
    records: tuple[tuple[int, ...], ...] = ()  # trained records by set of ranks, then rank
    objects: str = ""  # digest of the channel's objects

    def json_text(self) -> str:
        """The JSON text that the rank reads and stores with its model."""
        return json.dumps(self._asdict()) + "\n"


def parse_resume_request(name: str, content: bytes) -> ResumeRequest:
    """Parse the content of a file with a resume request. Raises ChannelError."""
    try:
        resume_fields: Any = json.loads(content)
        request = ResumeRequest(**{**resume_fields, "records": tuple(map(tuple, resume_fields.get("records", ())))})
    except (ValueError, TypeError, AttributeError) as error:
        raise ChannelError(f"{name}{RESUME_SUFFIX} is not as in CHANNELS.md: {error}") from error
    request_numbers = [request.epoch, request.ranks, *(count for counts in request.records for count in counts)]
    if not all(type(number) is int and number >= 0 for number in request_numbers) or not all(
        (request.ranks, *request.records)
    ):
        raise ChannelError(
            f"{name}{RESUME_SUFFIX}: epoch, ranks and records must be whole numbers, "
            "with a number of records for each rank"
        )
    return request


def digest_of_objects(objects: Sequence[S3Object]) -> str:
    """Return a digest of a channel's objects, which shows whether the objects have changed since an epoch began."""
    return hashlib.sha256(json.dumps([astuple(source) for source in objects]).encode()).hexdigest()[:16]


def deal_remaining_data(
    first_streams: list[list[Piece]], resume: ResumeRequest, format_name: str, make_read: Callable[[], Reader]
) -> list[list[Piece]]:
    """Deal the remaining data of an epoch into one stream for each rank.

    `first_streams` are the streams of the ranks that began the epoch. `make_read` returns a function that reads
    objects, for use in one thread. Raises ChannelError if the request says that a rank trained on more records than its
    stream contains.
    """
    streams = first_streams
    next_rank_counts = [*map(len, resume.records[1:]), resume.ranks]
    for record_counts, ranks in zip(resume.records, next_rank_counts):  # noqa: B905  # Python 3.9
        positions_and_gaps = in_parallel(
            lambda pair: position_after_records(make_read(), *pair, format_name),
            list(zip(streams, record_counts)),  # noqa: B905
        )
        for rank, (_, missing_records) in enumerate(positions_and_gaps):
            if missing_records:
                raise ChannelError(
                    f"epoch {resume.epoch}: rank {rank} cannot have trained on {record_counts[rank]} records: its "
                    "stream "
                    f"has {record_counts[rank] - missing_records}; does the checkpoint belong to this data?"
                )
        streams = deal_pieces(remaining_pieces(streams, [position for position, _ in positions_and_gaps]), ranks)
    return streams


def position_after_records(read: Reader, stream: Stream, records: int, format_name: str) -> tuple[Position, int]:
    """Return the position after a stream's first `records` records, and by how many records the stream is too short."""
    for index, piece in enumerate(stream):
        if not records:
            return Position(index), 0
        format_name, first_bytes = detected_format(read, piece, format_name)
        record, offset = piece.record, piece.offset
        for part in read_parts(read, piece, first_bytes, format_name, None):
            if records < part.record - record:
                return Position(index, record + records, offset + end_of(format_name, bytes(part.data), records)), 0
            records -= part.record - record
            record, offset = part.record, part.offset
            if not records and offset < piece.source.size:
                return Position(index, record, offset), 0
    return Position(len(stream)), records
