"""The FIFOs of one name, epoch after epoch, and a warning about those that nobody opens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dyntrain.training.feed.channels import Channel, rank_of
from dyntrain.training.feed.dealing import Piece
from dyntrain.training.feed.fifos import Fifo
from dyntrain.training.feed.pump import Pump

UNOPENED_SECONDS = 60.0


@dataclass
class Offered:
    """The FIFOs of the whole channel (`rank` None), or of one of its `ranks` ranks."""

    name: str
    channel: Channel
    rank: int | None
    ranks: int | None
    epoch: int = 0
    fifo: Fifo | None = None
    guard: Fifo | None = None  # of the epoch that is being read, or was read last
    waits_for_list: bool = False  # opened before the channel's objects were listed
    write: int = -1
    pump: Pump | None = None
    reader: str = ""
    opened_at: float | None = None
    told_unopened: bool = False
    rest: dict[int, list[Piece]] = field(default_factory=dict)  # of the epoch that its rank resumes


def unopened(offered: Sequence[Offered], local: range, now: float) -> Iterator[str]:
    """A warning for people, once for each rank on this machine that does not read its own channel."""
    first: dict[str, Offered] = {}
    for one in offered:
        if one.opened_at is not None and (base := rank_of(one.name)) is not None:
            first.setdefault(base[0], one)
    for one in offered:
        base = rank_of(one.name)
        if base is None or one.opened_at is not None or one.told_unopened or base[1] not in local:
            continue
        other = first.get(base[0])
        if other is not None and other.opened_at is not None and now - other.opened_at > UNOPENED_SECONDS:
            one.told_unopened = True
            yield (
                f"channel {one.name}: nobody has opened it, {UNOPENED_SECONDS:.0f} s after {other.name} was; does that "
                "rank's program read it?"
            )
