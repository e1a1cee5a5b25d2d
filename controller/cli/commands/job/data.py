"""Check the option `--channel` of `dyntrain job submit`, and find the S3 folder that a cluster's nodes may read."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from dyntrain.controller.contract.errors import GiveUp
from dyntrain.training.feed.channels import PIPE, Channel, channels_of
from dyntrain.training.feed.dealing import too_many_channels_warning
from dyntrain.training.feed.places import MANIFEST, ChannelError, bucket_and_prefix
from dyntrain.training.worker.channel.objects import channel_variable


def check_channels(words: Sequence[str], *, elastic: bool) -> list[str]:
    """Check the values of --channel and return warnings. Raises GiveUp for channels that the job cannot read."""
    channels = _parsed_channels(words)
    if not elastic:
        warning = too_many_channels_warning(sum(channel.mode == PIPE for channel in channels))
        return [warning] if warning else []
    for channel in channels:
        if channel != Channel(channel.name, channel.source):
            raise GiveUp(
                f"--channel {channel.name}: workers of an elastic job read data by `job.channel`, so leave out mode, "
                "shuffle and format"
            )
    common_folder(words)
    return []


def channel_variables(words: Sequence[str]) -> dict[str, str]:
    """Environment variables from which `job.channel` in a training script learns the S3 folder or manifest of each
    channel. Raises GiveUp.
    """
    return {
        channel_variable(channel.name): channel.source
        if _is_folder_or_manifest(channel.source)
        else f"{channel.source}/"
        for channel in _parsed_channels(words)
    }


def _is_folder_or_manifest(source: str) -> bool:
    return source.endswith(("/", MANIFEST))


def common_folder(words: Sequence[str]) -> tuple[str, str]:
    """The bucket and the folder that contain all channels of a cluster. Bucket and folder are "" for a cluster without
    channels. Raises GiveUp for channels without a common folder.
    """
    channels = _parsed_channels(words)
    if not channels:
        return "", ""
    buckets_and_keys = [bucket_and_prefix(channel.source) for channel in channels]
    channel_folders = [
        posixpath.dirname(key) if channel.source.endswith(MANIFEST) else key.rstrip("/")
        for channel, (_, key) in zip(channels, buckets_and_keys, strict=True)
    ]
    shared_folder = posixpath.commonpath(channel_folders)
    if len({bucket for bucket, _ in buckets_and_keys}) > 1 or not shared_folder:
        raise GiveUp(
            "--channel: a cluster's nodes can read only one folder of one bucket, so put all channels below one folder"
        )
    return buckets_and_keys[0][0], shared_folder


def _parsed_channels(words: Sequence[str]) -> list[Channel]:
    try:
        return channels_of(words)
    except ChannelError as error:
        raise GiveUp(f"--channel: {error}") from error
