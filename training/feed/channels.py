"""Parses channel options: NAME=SOURCE[,shuffle=SEED][,mode=file][,format=FORMAT]. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dyntrain.training.feed.frames import checked_format
from dyntrain.training.feed.places import ChannelError, checked_name, checked_source

PIPE, FILE = MODES = ("pipe", "file")
ROOT = "/opt/ml/input/data"
_SETTING = re.compile(r"(.*),(shuffle|mode|format)=([^,/]*)", re.DOTALL)
_RANK_NAME = re.compile(r"(.+)_(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Channel:
    """A channel and its settings.

    With `seed` None, objects are read in order of their names, or in the manifest's order. With `format` "", the format
    is detected from the objects.
    """

    name: str
    source: str
    mode: str = PIPE
    seed: int | None = None
    format: str = ""

    @property
    def dealt(self) -> bool:
        """Whether the channel is also divided among ranks. A channel named like NAME_3 already belongs to one rank."""
        return self.mode == PIPE and _RANK_NAME.fullmatch(self.name) is None

    def of_rank(self, rank: int) -> str:
        return f"{self.name}_{rank}"


def channels_of(words: Sequence[str]) -> list[Channel]:
    """Parse all channel options. Raises ChannelError."""
    channels = [channel_of(word) for word in words]
    names = [channel.name for channel in channels]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ChannelError(f"channel {twice[0]} is given twice")
    folders = {channel.name for channel in channels if channel.mode == FILE}
    for name in names:
        matched = _RANK_NAME.fullmatch(name)
        if name in folders and matched is not None and matched[1] in set(names) - folders:
            raise ChannelError(f"channel {name}: its folder has the name of a FIFO of channel {matched[1]}")
    return channels


def channel_of(word: str) -> Channel:
    """Parse one channel option. Raises ChannelError."""
    name, _, source = word.partition("=")
    settings: dict[str, str] = {}
    while (matched := _SETTING.fullmatch(source)) is not None:
        source = matched[1]
        settings.setdefault(matched[2], matched[3])
    mode, seed = settings.get("mode", PIPE).lower(), settings.get("shuffle")
    if mode not in MODES:
        raise ChannelError(f"channel {name}: mode={mode} must be one of {', '.join(MODES)}")
    if seed is not None and not re.fullmatch(r"-?[0-9]{1,19}", seed):
        raise ChannelError(f"channel {name}: shuffle={seed} must be a whole number")
    if mode == FILE and seed is not None:
        raise ChannelError(f"channel {name}: shuffle needs mode=pipe; in a folder the program chooses the order")
    kind = settings.get("format", "")
    return Channel(
        checked_name(name),
        checked_source(source),
        mode,
        None if seed is None else int(seed),
        checked_format(kind) if kind else "",
    )


def rank_of(name: str) -> tuple[str, int] | None:
    """Split NAME_3 into NAME and 3; None if the name has no rank."""
    matched = _RANK_NAME.fullmatch(name)
    return None if matched is None else (matched[1], int(matched[2]))
