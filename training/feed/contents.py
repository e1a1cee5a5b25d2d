"""The contents of channels: the S3 objects, listed once, and the pieces of objects that each rank reads in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from dyntrain.training.feed.channels import Channel
from dyntrain.training.feed.dealing import Piece, first_streams_of_epoch, objects_in_order, shards_of, without_indices
from dyntrain.training.feed.errands import ChildRequests
from dyntrain.training.feed.feeder import object_reader
from dyntrain.training.feed.listing import list_objects_patiently
from dyntrain.training.feed.places import ChannelError, S3Object, bucket_and_prefix
from dyntrain.training.feed.resuming import ResumeRequest, deal_remaining_data, digest_of_objects


class ChannelContents:
    """The S3 objects and the ranks' streams of all channels. The function `say` prints a message."""

    def __init__(self, s3: Any, child_requests: ChildRequests, say: Callable[[str], None]) -> None:
        self._s3, self._child_requests, self._say = s3, child_requests, say
        self._objects: dict[str, list[S3Object]] = {}
        # By (channel's name, whether ranks share the channel, resume request); None while being computed
        self._remaining: dict[tuple[str, bool, ResumeRequest], list[list[Piece]] | None] = {}

    def start_listing(self, channel: Channel, on_listed: Callable[[], None]) -> None:
        """List the channel's objects in a child process, then call `on_listed`, which may raise ChannelError."""

        def list_in_child() -> list[tuple[object, ...]]:
            return [astuple(source) for source in list_objects_patiently(self._s3, channel.source)]

        def store_objects(object_fields: Any) -> None:
            objects = without_indices([S3Object(*fields) for fields in object_fields])
            self._objects[channel.name] = self._nonempty_objects(channel, objects)
            on_listed()

        self._child_requests.send(channel.name, list_in_child, store_objects)

    def is_listed(self, channel: Channel) -> bool:
        return channel.name in self._objects

    def streams(self, channel: Channel, ranks: int | None, epoch: int) -> list[list[Piece]]:
        """Return each rank's stream in an epoch, or if `ranks` is None one stream with the whole channel.

        Raises ChannelError.
        """
        objects = self._objects[channel.name]
        if ranks is None:
            return [[Piece(source) for source in objects_in_order(objects, channel.seed, epoch)]]
        return first_streams_of_epoch(
            channel.name, objects, bucket_and_prefix(channel.source)[1], ranks, channel.seed, epoch
        )

    def remaining_streams(self, channel: Channel, resume: ResumeRequest, *, shared: bool) -> list[list[Piece]] | None:
        """Return the data of an epoch that no rank has trained on, as one stream for each rank.

        Returns None while the streams are still being computed: call this method again later. Raises ChannelError.
        """
        objects = self._objects[channel.name]
        if resume.records and resume.objects not in ("", digest_of_objects(objects)):
            raise ChannelError(
                f"channel {channel.name}: its objects at {channel.source} have changed since epoch {resume.epoch} "
                "began; restart that epoch, with no records"
            )
        request_key = channel.name, shared, resume
        if request_key not in self._remaining:
            for old_key in [
                kept_key
                for kept_key, streams in self._remaining.items()
                if kept_key[:2] == request_key[:2] and streams is not None
            ]:
                del self._remaining[old_key]
            self._remaining[request_key] = None
            first_rank_count = len(resume.records[0]) if resume.records else resume.ranks
            first_streams = self.streams(channel, first_rank_count if shared else None, resume.epoch)
            object_numbers = {source: number for number, source in enumerate(objects)}

            def deal_in_child() -> list[list[tuple[int, int, int]]]:
                streams = deal_remaining_data(first_streams, resume, channel.format, lambda: object_reader(self._s3))
                return [
                    [(object_numbers[piece.source], piece.record, piece.offset) for piece in stream]
                    for stream in streams
                ]

            def store_streams(numbered_streams: Any) -> None:
                self._remaining[request_key] = [
                    [Piece(objects[number], *start_place) for number, *start_place in stream]
                    for stream in numbered_streams
                ]

            self._child_requests.send(channel.name, deal_in_child, store_streams)
        return self._remaining[request_key]

    def resume_answer(self, channel: Channel, resume: ResumeRequest) -> ResumeRequest:
        """Return the answer to a resume request: the request with a digest of the channel's objects added."""
        return resume._replace(objects=digest_of_objects(self._objects[channel.name]))

    def _nonempty_objects(self, channel: Channel, objects: Sequence[S3Object]) -> list[S3Object]:
        """Return the objects that contain data.

        Raises ChannelError if all objects of the channel are empty, or all objects of one shard.
        """
        nonempty_objects = [source for source in objects if source.size]
        if not nonempty_objects:
            problem = "all its objects are empty" if objects else f"there is no object at {channel.source}"
            raise ChannelError(f"channel {channel.name}: {problem}")
        if len(nonempty_objects) < len(objects):
            empty_object = next(source for source in objects if not source.size)
            self._say(
                f"channel {channel.name}: {len(objects) - len(nonempty_objects)} empty objects are skipped, such as "
                f"{empty_object}"
            )
        shards = shards_of(objects, bucket_and_prefix(channel.source)[1]) if channel.is_divided else None
        for rank, shard in enumerate(shards or ()):
            if not any(source.size for source in shard):
                raise ChannelError(
                    f"channel {channel.name}: shard {rank} has only empty objects, such as {shard[0]}: "
                    f"rank {rank} would read nothing"
                )
        return nonempty_objects
