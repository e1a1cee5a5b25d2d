"""Holds the FIFOs of all channels: offers an epoch's, finds who opens it, and pumps until it ends; then the next one's.

The FIFO of epoch E + 1 is there before that of E ends, so that a reader that goes on at once finds it.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.training.feed import opened as who
from dyntrain.training.feed.channels import PIPE, Channel, rank_of, unopened
from dyntrain.training.feed.crc import fast
from dyntrain.training.feed.dealing import (
    Piece,
    Position,
    dealt,
    enough,
    in_order,
    of_shards,
    shards_of,
    without_indices,
)
from dyntrain.training.feed.feeder import Write, fork, messages, objects_by, write_all
from dyntrain.training.feed.fifos import Fifo, clear
from dyntrain.training.feed.listing import listed
from dyntrain.training.feed.places import ChannelError, S3Object, parsed
from dyntrain.training.feed.pump import ENDED, FAILED, GOING, LEFT, MOST_DEATHS, Pump
from dyntrain.training.feed.stream import LONGEST_PAUSE, PATIENCE

UNOPENED_SECONDS = 60.0
Say = Callable[[str], None]


@dataclass
class _Offered:
    """FIFOs of one name. `rank` None: the whole channel."""

    name: str
    channel: Channel
    rank: int | None
    epoch: int = 0
    fifo: Fifo | None = None
    guard: Fifo | None = None  # of the epoch that is being read, or was last
    asked: bool = False  # opened before it was known what is in it
    write: int = -1
    pump: Pump | None = None
    reader: str = ""
    opened_at: float | None = None
    told_unopened: bool = False
    anew: dict[int, list[Piece]] = field(default_factory=dict)  # what is left of an epoch, by epoch


class Keeper:
    """`ranks` are those of the job, `local` those on this machine. `problem` is what the program must end for. Of one
    thread: its children are forks.
    """

    def __init__(
        self,
        root: Path,
        channels: Sequence[Channel],
        ranks: int,
        local: range,
        say: Say,
        connect: Callable[[], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root, self.ranks, self._local, self._say, self._clock = root, ranks, local, say, clock
        self.problem = ""
        self.group = 0  # of feeders, once there is a guardian
        self._s3 = connect()
        self._crc = fast()
        self._opened = who.Opened()
        self._lists: dict[str, list[S3Object]] = {}
        self._listers: dict[int, tuple[Channel, int, bytearray, int]] = {}  # with how often it has died
        self._pumps: list[Pump] = []
        root.mkdir(parents=True, exist_ok=True)
        clear(root)
        self.offered: list[_Offered] = []
        for channel in channels:
            if channel.mode != PIPE:
                continue
            self.offered.append(_Offered(channel.name, channel, None))
            if channel.dealt:
                self.offered += [_Offered(channel.of_rank(rank), channel, rank) for rank in range(ranks)]
            self._list(channel, 0)
        for one in self.offered:
            one.fifo = self._offer(one, 0)

    def turn(self, seconds: float) -> None:
        """Waits for that long at most, and does what there is to do."""
        waiting = select.poll()
        for fd in (self._opened.fileno(), *self._listers):
            waiting.register(fd, select.POLLIN)
        hung: dict[int, Pump] = {}
        for pump in (one for one in self._pumps if one.state == GOING):
            fd, room = pump.waits
            waiting.register(fd, select.POLLOUT if room else select.POLLIN)
            if not room:
                waiting.register(pump.gone, 0)  # its error alone is told
                hung[pump.gone] = pump
        ready = {fd for fd, _ in waiting.poll(int(seconds * 1000))}
        for pipe in ready & set(self._listers):
            self._listen(pipe)
        for fd in ready & set(hung):
            hung[fd].hang_up()
        for pump in self._pumps:
            if pump.waits[0] in ready:
                pump.turn()
        self._settle()
        for watch in self._opened.look():
            self._was_opened(watch)
        self._look_for_unopened()

    @property
    def reading(self) -> bool:
        """Whether a FIFO is being read."""
        return any(pump.state == GOING for pump in self._pumps)

    @property
    def lists(self) -> bool:
        """Whether it is not known yet what all channels have."""
        return bool(self._listers)

    def close(self) -> None:
        """Of a job that is over, or of one that has a problem and whose readers are gone."""
        for pump in self._pumps:
            pump.close()
        for one in self.offered:
            for fifo in (one.fifo, one.guard):
                if fifo is not None:
                    fifo.withdraw()
            if one.asked:
                os.close(one.write)
        self._opened.close()

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _offer(self, one: _Offered, epoch: int) -> Fifo:
        return Fifo(self.root / f"{one.name}_{epoch}", self._opened)

    # ---- what a channel has

    def _list(self, channel: Channel, deaths: int) -> None:
        child, pipe = fork(partial(_list, self._s3, channel))
        os.set_blocking(pipe, False)
        self._listers[pipe] = (channel, child, bytearray(), deaths)

    def _listen(self, pipe: int) -> None:
        channel, child, content, deaths = self._listers[pipe]
        try:
            more = os.read(pipe, 1024 * 1024)
        except BlockingIOError:
            return
        content += more
        if more:
            return
        os.close(pipe)
        os.waitpid(child, 0)
        del self._listers[pipe]
        try:
            told = json.loads(content)
        except ValueError:  # it was killed
            if deaths < MOST_DEATHS:
                self._list(channel, deaths + 1)
            else:
                self._fail(f"channel {channel.name}: the process that lists its objects ended {deaths + 1} times")
            return
        if isinstance(told, str):
            self._fail(f"channel {channel.name}: {told}")
            return
        objects = without_indices([S3Object(*one) for one in told])
        try:
            self._lists[channel.name] = self._checked(channel, objects)
        except ChannelError as error:
            self._fail(str(error))
            return
        for one in self.offered:
            if one.asked and one.channel is channel:
                one.asked = False
                self._pump(one)

    def _checked(self, channel: Channel, objects: list[S3Object]) -> list[S3Object]:
        """Those that have a byte. Raises ChannelError."""
        full = [one for one in objects if one.size]
        if not full:
            what = "all its objects are empty" if objects else f"there is no object at {channel.source}"
            raise ChannelError(f"channel {channel.name}: {what}")
        if len(full) < len(objects):
            empty = next(one for one in objects if not one.size)
            self._say(f"channel {channel.name}: {len(objects) - len(full)} empty objects are passed over, as {empty}")
        prefix = parsed(channel.source)[1]
        shards = shards_of(objects, prefix) if channel.dealt else None
        for rank, shard in enumerate(shards or ()):
            if not any(one.size for one in shard):
                raise ChannelError(
                    f"channel {channel.name}: shard {rank} is empty, as {shard[0]}; rank {rank} would read nothing"
                )
        return full

    def stream(self, one: _Offered, epoch: int) -> list[Piece]:
        """What a FIFO has in an epoch. Raises ChannelError."""
        if epoch in one.anew:
            return one.anew[epoch]
        objects, channel = self._lists[one.channel.name], one.channel
        if one.rank is None:
            return [Piece(found) for found in in_order(objects, channel.seed, epoch)]
        shards = shards_of(objects, parsed(channel.source)[1])
        if shards is not None and len(shards) > 1:
            enough(channel.name, len(shards), "shards", self.ranks)
            return of_shards(shards, self.ranks, channel.seed, epoch)[one.rank]
        enough(channel.name, len(objects), "objects", self.ranks)
        return dealt(objects, self.ranks, channel.seed, epoch)[one.rank]

    # ---- who opens it

    def _was_opened(self, watch: int) -> None:
        for one in self.offered:
            if one.fifo is not None and one.fifo.watch == watch:
                self._taken(one, one.fifo)
                return
            if one.guard is not None and one.guard.watch == watch:
                self._second(one, one.guard)
                return
        self._opened.done(watch)  # of a FIFO that is withdrawn

    def _taken(self, one: _Offered, taken: Fifo) -> None:
        one.write = taken.take()
        if one.guard is not None:
            one.guard.withdraw()
        one.guard = taken
        one.opened_at = self._clock() if one.opened_at is None else one.opened_at
        one.epoch += 1
        one.fifo = self._offer(one, one.epoch)
        if one.channel.name in self._lists:
            self._pump(one)
        else:
            one.asked = True

    def _pump(self, one: _Offered) -> None:
        """For the first that opened it; of several that did at once nobody can be turned away any more."""
        epoch = one.epoch - 1
        name = f"{one.name}_{epoch}"
        found = who.readers(one.write, self._own())
        one.reader = who.called(found[0]) if found else "a process"
        if len(found) > 1:
            both = " and ".join(who.called(pid) for pid in found[:2])
            self._fail(f"{name} is opened by two at once, {both}: one reader a FIFO, each rank its own channel")
            return
        try:
            stream = self.stream(one, epoch)
        except ChannelError as error:
            self._fail(str(error))
            return
        one.pump = Pump(name, stream, one.write, partial(self._feed, one.channel, stream, one.write))
        self._pumps.append(one.pump)

    def _own(self) -> set[int]:
        """Children, which have FIFOs open for a while."""
        listers = {child for _, child, _, _ in self._listers.values()}
        return {self.group, *listers, *(pump.child for pump in self._pumps)}

    def _feed(self, channel: Channel, stream: list[Piece], fifo: int, position: Position, skip: int) -> tuple[int, int]:
        def work(write: Write) -> None:
            made = messages(objects_by(self._s3), stream, position, skip, channel.format, self._crc)
            write_all(write, made, channel.name)

        return fork(work, fifo, self.group)

    def _second(self, one: _Offered, guard: Fifo) -> None:
        found = [who.called(pid) for pid in who.readers(guard.made, self._own())]
        state = "has read it"
        if one.pump is not None and one.pump.state == GOING:
            state = "reads it"
            one.reader = next(map(who.called, who.readers(one.write, self._own())), one.reader)
        sentence = f"{guard.path.name} is refused to {found[0] if found else 'a process'}: {one.reader} {state}; " + (
            "a FIFO has one reader, each rank its own channel"
        )
        self._say(sentence)
        guard.turn_away(sentence)

    def _settle(self) -> None:
        for pump in list(self._pumps):
            if pump.state == GOING:
                continue
            reader = next((one.reader for one in self.offered if one.pump is pump), "its reader")
            if pump.state == FAILED:
                self._fail(pump.problem)
                continue  # its reader waits until it is ended
            if pump.state == LEFT:
                self._say(f"{pump.name}: {reader} closed it before its end; the rest of the epoch is not read")
            assert pump.state in (LEFT, ENDED)
            pump.close()
            self._pumps.remove(pump)

    def _look_for_unopened(self) -> None:
        first: dict[str, _Offered] = {}
        for one in self.offered:
            if one.opened_at is not None and (base := rank_of(one.name)) is not None:
                first.setdefault(base[0], one)
        for one in self.offered:
            base = rank_of(one.name)
            if base is None or one.opened_at is not None or one.told_unopened or base[1] not in self._local:
                continue
            other = first.get(base[0])
            if other is None or other.opened_at is None:
                continue
            if self._clock() - other.opened_at > UNOPENED_SECONDS:
                one.told_unopened = True
                self._say(unopened(one.name, other.name, UNOPENED_SECONDS))


def _list(s3: Any, channel: Channel, write: Write) -> None:
    until, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            found: Any = [[one.bucket, one.key, one.size, one.etag] for one in listed(s3, channel.source)]
            break
        except ChannelError as error:
            found = str(error)
            break
        except (BotoCoreError, ClientError) as error:
            found = f"{channel.source} cannot be listed: {error}"
            status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 503
            if status < 500 or time.monotonic() > until:
                break
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)
    write([json.dumps(found).encode()])
