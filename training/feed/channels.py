"""Parses channel options: NAME=SOURCE[,shuffle=SEED][,mode=file][,format=FORMAT]. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dyntrain.training.feed.frames import checked_format
from dyntrain.training.feed.places import ChannelError, checked_name, checked_source

PIPE, FILE = MODES = ("pipe", "file")
ROOT = "/opt/ml/input/data"  # SageMaker's folder for the data of all channels
_SETTING = re.compile(r"(.*),(shuffle|mode|format)=([^,/]*)", re.DOTALL)  # last setting of a channel option
_RANK_NAME = re.compile(r"(.+)_(0|[1-9][0-9]*)")  # name of a channel that belongs to one rank


@dataclass(frozen=True)
class Channel:
    """A named data source in S3, and the way in which the program reads the data.

    If `seed` is None, objects are read in the order of their keys, or in the manifest's order. If `format` is "", the
    format of the records is detected from the objects.
    """

    name: str  # as in the option and in the FIFOs' names
    source: str  # address in S3
    mode: str = PIPE  # PIPE or FILE
    seed: int | None = None  # of the random order of the objects
    format: str = ""  # of the records, one of `frames.FORMATS`

    @property
    def is_divided(self) -> bool:
        """Whether each rank also gets a FIFO with its own part of the channel.

        A channel with a name like NAME_3 already belongs to one rank, so such a channel is not divided.
        """
        return self.mode == PIPE and _RANK_NAME.fullmatch(self.name) is None

    def name_of_rank(self, rank: int) -> str:
        return f"{self.name}_{rank}"


def channels_of(options: Sequence[str]) -> list[Channel]:
    """Parse all `--channel` options. Raises ChannelError."""
    channels = [channel_of(option) for option in options]
    channel_names = [channel.name for channel in channels]
    if repeated_names := [channel_name for channel_name in channel_names if channel_names.count(channel_name) > 1]:
        raise ChannelError(f"channel {repeated_names[0]} is given twice")
    folder_channels = {channel.name for channel in channels if channel.mode == FILE}
    for channel_name in channel_names:
        match = _RANK_NAME.fullmatch(channel_name)
        if channel_name in folder_channels and match is not None and match[1] in set(channel_names) - folder_channels:
            raise ChannelError(
                f"channel {channel_name}: its folder would have the name of a FIFO of channel {match[1]}"
            )
    return channels


def channel_of(option: str) -> Channel:
    """Parse the value of one `--channel` option. Raises ChannelError."""
    name, _, source = option.partition("=")
    channel_settings: dict[str, str] = {}
    while (match := _SETTING.fullmatch(source)) is not None:
        source = match[1]
        channel_settings.setdefault(match[2], match[3])
    mode_name, seed = channel_settings.get("mode", PIPE).lower(), channel_settings.get("shuffle")
    if mode_name not in MODES:
        raise ChannelError(f"channel {name}: mode={mode_name} must be one of {', '.join(MODES)}")
    if seed is not None and not re.fullmatch(r"-?[0-9]{1,19}", seed):
        raise ChannelError(f"channel {name}: shuffle={seed} must be a whole number")
    if mode_name == FILE and seed is not None:
        raise ChannelError(f"channel {name}: shuffle needs mode=pipe, as in a folder the program chooses the order")
    format_name = channel_settings.get("format", "")
    return Channel(
        checked_name(name),
        checked_source(source),
        mode_name,
        None if seed is None else int(seed),
        checked_format(format_name) if format_name else "",
    )


def rank_of(name: str) -> tuple[str, int] | None:
    """Split the name of one rank's channel, such as NAME_3, into ("NAME", 3).

    Returns None for a name without a rank.
    """
    match = _RANK_NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))
