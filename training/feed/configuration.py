"""Writes inputdataconfig.json, the file in which SageMaker's PipeModeDataset looks up a channel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dyntrain.training.feed.channels import PIPE, Channel
from dyntrain.training.feed.places import ChannelError


def write_channel_configuration(root: Path, channels: Sequence[Channel], ranks: int) -> None:
    """Write the file inputdataconfig.json for all channels, and create the missing folders. Raises ChannelError."""
    modes = {channel.name: channel.mode for channel in channels}
    for channel in channels:
        if channel.is_divided:
            modes.update({channel.name_of_rank(rank): PIPE for rank in range(ranks)})
    configuration = {name: {"TrainingInputMode": mode.capitalize()} for name, mode in modes.items()}
    config_folder = root.parent / "config"
    try:
        for needed_folder in (root, config_folder):
            needed_folder.mkdir(parents=True, exist_ok=True)
        temporary_file = (
            config_folder / ".inputdataconfig.json"
        )  # renamed into place: programs may read the file while ranks are added
        temporary_file.write_text(json.dumps(configuration, indent=1) + "\n")
        temporary_file.rename(config_folder / "inputdataconfig.json")
    except OSError as error:
        raise ChannelError(f"{root} cannot be created: {error.strerror}; give another folder with --root") from error
