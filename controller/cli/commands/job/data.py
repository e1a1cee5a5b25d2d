"""`--channel` of `dyntrain job submit`: its checks, and what a cluster's nodes may read."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from dyntrain.controller.contract.errors import GiveUp
from dyntrain.training.feed.channels import PIPE, Channel, channels_of
from dyntrain.training.feed.dealing import many_channels
from dyntrain.training.feed.places import MANIFEST, ChannelError, parsed
from dyntrain.training.worker.channel.objects import variable


def checked(words: Sequence[str], *, elastic: bool) -> list[str]:
    """Warnings, for people. Raises GiveUp."""
    channels = _channels(words)
    if not elastic:
        warning = many_channels(sum(channel.mode == PIPE for channel in channels))
        return [warning] if warning else []
    for channel in channels:
        if channel != Channel(channel.name, channel.source):
            raise GiveUp(
                f"--channel {channel.name}: a cluster's workers read by job.channel; mode, shuffle and format do "
                "not go with --elastic"
            )
    data_of(words)
    return []


def variables_of(words: Sequence[str]) -> dict[str, str]:
    """Variables with the folders for `job.channel`: nodes may list nothing else. Raises GiveUp."""
    return {variable(one.name): one.source if _has_end(one.source) else f"{one.source}/" for one in _channels(words)}


def _has_end(source: str) -> bool:
    return source.endswith(("/", MANIFEST))


def data_of(words: Sequence[str]) -> tuple[str, str]:
    """The bucket and folder that contain all channels of a cluster; "" without any. Raises GiveUp."""
    channels = _channels(words)
    if not channels:
        return "", ""
    places = [parsed(channel.source) for channel in channels]
    folders = [
        posixpath.dirname(key) if channel.source.endswith(MANIFEST) else key.rstrip("/")
        for channel, (_, key) in zip(channels, places, strict=True)
    ]
    folder = posixpath.commonpath(folders)
    if len({bucket for bucket, _ in places}) > 1 or not folder:
        raise GiveUp("--channel: a cluster's nodes may read one folder of one bucket; put its channels below one")
    return places[0][0], folder


def _channels(words: Sequence[str]) -> list[Channel]:
    try:
        return channels_of(words)
    except ChannelError as error:
        raise GiveUp(f"--channel: {error}") from error
