"""Keeps track of the FIFOs of one channel or rank over the epochs, and warns of FIFOs that no process opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dyntrain.training.feed.channels import Channel, rank_of
from dyntrain.training.feed.dealing import Piece
from dyntrain.training.feed.fifos import Fifo
from dyntrain.training.feed.pump import Pump

UNOPENED_SECONDS = 60.0  # after another rank opened its channel: then a rank that did not gets a warning


@dataclass
class FifoOffer:
    """The FIFOs of a whole channel (`rank` is None), or of one of the `ranks` ranks that share the channel."""

    name: str  # of the channel, with the rank if the FIFO is for one rank
    channel: Channel
    rank: int | None  # which rank reads, or None for the whole channel
    ranks: int | None  # number of ranks among which the channel is divided
    epoch: int = 0  # of the FIFO that is offered
    fifo: Fifo | None = None  # that is offered and not opened yet
    guard: Fifo | None = None  # of the epoch that is being read, or was read last
    waits_for_list: bool = False  # opened before the channel's objects were listed
    write_end: int = -1  # descriptor of the opened FIFO
    pump: Pump | None = None  # which fills the opened FIFO
    reader: str = ""  # description of the process that reads
    opened_at: float | None = None  # when the first FIFO was opened
    was_warned: bool = False  # whether `unopened_warnings` gave a warning
    resumed_streams: dict[int, list[Piece]] = field(default_factory=dict)  # by epoch: the streams of a resumed epoch


def unopened_warnings(offered: Sequence[FifoOffer], ranks_here: range, now: float) -> Iterator[str]:
    """Yield one warning for each rank on this machine that does not open its own FIFO.

    A rank gets the warning `UNOPENED_SECONDS` after another rank has opened a FIFO of the same channel.
    """
    entries_by_channel: dict[str, FifoOffer] = {}
    for entry in offered:
        if entry.opened_at is not None and (name_and_rank := rank_of(entry.name)) is not None:
            entries_by_channel.setdefault(name_and_rank[0], entry)
    for entry in offered:
        name_and_rank = rank_of(entry.name)
        if (
            name_and_rank is None
            or entry.opened_at is not None
            or entry.was_warned
            or name_and_rank[1] not in ranks_here
        ):
            continue
        opened_entry = entries_by_channel.get(name_and_rank[0])
        if (
            opened_entry is not None
            and opened_entry.opened_at is not None
            and now - opened_entry.opened_at > UNOPENED_SECONDS
        ):
            entry.was_warned = True
            yield (
                f"channel {entry.name}: not opened yet, {UNOPENED_SECONDS:.0f} s after {opened_entry.name} was; does "
                "that rank's program read it?"
            )
