"""Holds the FIFOs of all channels: offers an epoch's FIFO, finds out who opens it, and fills it until the epoch ends.

The FIFO of epoch E + 1 is there before that of E ends, so that a reader that continues at once finds it.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dyntrain.training.feed import opened as who
from dyntrain.training.feed.channels import PIPE, Channel, rank_of
from dyntrain.training.feed.configuration import configure
from dyntrain.training.feed.contents import Contents
from dyntrain.training.feed.crc import fast
from dyntrain.training.feed.dealing import Piece, Position
from dyntrain.training.feed.errands import Errands
from dyntrain.training.feed.feeder import Write, fork, messages, objects_by, write_all
from dyntrain.training.feed.fifos import RESUME, RESUMED, Fifo, clear
from dyntrain.training.feed.offered import Offered, unopened
from dyntrain.training.feed.places import ChannelError
from dyntrain.training.feed.pump import ENDED, FAILED, GOING, LEFT, Pump
from dyntrain.training.feed.resuming import Resume, resume_of

LOOK_SECONDS = 0.1  # between looks for resume requests
Say = Callable[[str], None]


class Keeper:
    """All FIFOs of a program.

    `ranks` is the number of ranks that the job begins with, `local` are this machine's. `problem` is the message of an
    error for which the program must end. For one thread, because it forks its children.
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
        self.root, self._channels, self._local, self._say, self._clock = root, channels, local, say, clock
        self._looks_at = clock()
        self.problem = ""
        self.group = 0  # the feeders' process group, once there is a guardian
        self._s3 = connect()
        self._crc = fast()
        self._opened = who.Opened()
        self._errands = Errands(self._fail)
        self._contents = Contents(self._s3, self._errands, say)
        self._pumps: list[Pump] = []
        self._abandoned: list[Pump] = []  # of epochs that their ranks resumed: their readers get no end of data
        root.mkdir(parents=True, exist_ok=True)
        clear(root)
        self.offered: list[Offered] = []
        for channel in channels:
            if channel.mode != PIPE:
                continue
            self.offered.append(Offered(channel.name, channel, None, None))
            if channel.dealt:
                self.offered += [Offered(channel.of_rank(rank), channel, rank, ranks) for rank in range(ranks)]
            self._contents.ask_for(channel, partial(self._listed, channel))
        for one in self.offered:
            one.fifo = self._offer(one, 0)

    def turn(self, seconds: float) -> None:
        """Wait for events, `seconds` at most, and handle them."""
        waiting = select.poll()
        for fd in (self._opened.fileno(), *self._errands.pipes):
            waiting.register(fd, select.POLLIN)
        hung: dict[int, Pump] = {}
        for pump in (one for one in self._pumps if one.state == GOING):
            fd, room = pump.waits
            waiting.register(fd, select.POLLOUT if room else select.POLLIN)
            if not room:
                waiting.register(pump.gone, 0)  # errors only
                hung[pump.gone] = pump
        for pump in self._abandoned:
            waiting.register(pump.gone, 0)
        ready = {fd for fd, _ in waiting.poll(int(seconds * 1000))}
        try:
            for pipe in ready & self._errands.pipes:
                self._errands.listen(pipe)
            for fd in ready & set(hung):
                hung[fd].hang_up()
            for pump in self._pumps:
                if pump.waits[0] in ready:
                    pump.turn()
            self._settle(ready)
            for watch in self._opened.look():
                self._was_opened(watch)
            if self._clock() >= self._looks_at:
                self._looks_at = self._clock() + LOOK_SECONDS
                for path in self.root.glob(f"*{RESUME}"):
                    self._resume(path)
        except ChannelError as error:
            self._fail(str(error))
        for sentence in unopened(self.offered, self._local, self._clock()):
            self._say(sentence)

    @property
    def reading(self) -> bool:
        """Whether a FIFO is being read."""
        return any(pump.state == GOING for pump in self._pumps)

    @property
    def lists(self) -> bool:
        """Whether some channel's objects are not listed yet."""
        return not all(self._contents.known(one.channel) for one in self.offered)

    def close(self) -> None:
        """Close all FIFOs, of a job that is over, or that has a problem and whose readers are gone."""
        for pump in (*self._pumps, *self._abandoned):
            pump.close()
        for one in self.offered:
            for fifo in (one.fifo, one.guard):
                if fifo is not None:
                    fifo.withdraw()
            if one.waits_for_list:
                os.close(one.write)
        self._opened.close()

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _offer(self, one: Offered, epoch: int) -> Fifo:
        return Fifo(self.root / f"{one.name}_{epoch}", self._opened)

    def _listed(self, channel: Channel) -> None:
        for one in self.offered:
            if one.waits_for_list and one.channel is channel:
                one.waits_for_list = False
                self._pump(one)

    def stream(self, one: Offered, epoch: int) -> list[Piece]:
        """The pieces that a FIFO delivers in an epoch. Raises ChannelError."""
        if epoch in one.rest:
            return one.rest[epoch]
        return self._contents.streams(one.channel, one.ranks, epoch)[one.rank or 0]

    # ---- ranks that resume an epoch

    def _resume(self, path: Path) -> None:
        """Handle a resume request, or leave it for the next look. Raises ChannelError."""
        name, content = path.name[: -len(RESUME)], path.read_bytes()
        if not content:
            return  # still being written
        resume = resume_of(name, content)
        one = self._of_rank(name, resume)
        if not self._contents.known(one.channel):
            return
        streams = self._contents.rest(one.channel, resume, shared=one.rank is not None)
        if streams is None:
            return
        self._begin(one, resume.epoch, streams[one.rank or 0])
        answer = self.root / f"{name}{RESUMED}"
        aside = answer.with_name(f".{answer.name}")
        aside.write_text(self._contents.answer(one.channel, resume).text())
        aside.rename(answer)
        path.unlink()

    def _of_rank(self, name: str, resume: Resume) -> Offered:
        """Find the FIFO of this name, or add it for a new rank. Raises ChannelError."""
        one = next((one for one in self.offered if one.name == name), None)
        if one is None:
            base, rank = rank_of(name) or ("", 0)
            beside = next((one for one in self.offered if one.channel.name == base and one.channel.dealt), None)
            if beside is None:
                raise ChannelError(f"{name}{RESUME}: there is no channel {name}")
            one = Offered(name, beside.channel, rank, resume.ranks)
            self.offered.append(one)
            configure(self.root, self._channels, resume.ranks)
        alone = one.rank is None and max(resume.ranks, *map(len, resume.records), 1) > 1
        if alone or (one.rank or 0) >= resume.ranks:
            raise ChannelError(f"{name}{RESUME}: {name} is not of {resume.ranks} ranks")
        if one.rank is not None:
            one.ranks = resume.ranks
        return one

    def _begin(self, one: Offered, epoch: int, stream: list[Piece]) -> None:
        """Offer the FIFO of a resumed epoch. A process that still reads the old FIFO no longer counts as its reader."""
        if one.pump is not None and one.pump in self._pumps:
            one.pump.hang_up()
            self._pumps.remove(one.pump)
            self._abandoned.append(one.pump)
        for fifo in (one.fifo, one.guard):
            if fifo is not None:
                fifo.withdraw()
        one.pump = one.guard = None
        one.epoch, one.rest = epoch, {epoch: stream}
        one.fifo = self._offer(one, epoch)

    # ---- who opens it

    def _was_opened(self, watch: int) -> None:
        for one in self.offered:
            if one.fifo is not None and one.fifo.watch == watch:
                self._taken(one, one.fifo)
                return
            if one.guard is not None and one.guard.watch == watch:
                self._second(one, one.guard)
                return
        self._opened.done(watch)  # of a withdrawn FIFO

    def _taken(self, one: Offered, taken: Fifo) -> None:
        one.write = taken.take()
        if one.guard is not None:
            one.guard.withdraw()
        one.guard = taken
        one.opened_at = self._clock() if one.opened_at is None else one.opened_at
        one.epoch += 1
        one.fifo = self._offer(one, one.epoch)
        if self._contents.known(one.channel):
            self._pump(one)
        else:
            one.waits_for_list = True

    def _pump(self, one: Offered) -> None:
        """Fill the FIFO for its reader.

        Raises ChannelError if several opened it at once: none of them can be refused any more.
        """
        epoch = one.epoch - 1
        name = f"{one.name}_{epoch}"
        pids = who.readers(one.write, self._own())
        one.reader = who.called(pids[0]) if pids else "a process"
        if len(pids) > 1:
            both = " and ".join(who.called(pid) for pid in pids[:2])
            raise ChannelError(f"{name} is opened by two at once, {both}: one reader a FIFO, each rank its own channel")
        stream = self.stream(one, epoch)
        one.pump = Pump(name, stream, one.write, partial(self._feed, one.channel, stream, one.write))
        self._pumps.append(one.pump)

    def _own(self) -> set[int]:
        """The pids of children, which also have FIFOs open for a while."""
        return {self.group, *self._errands.children, *(pump.child for pump in self._pumps)}

    def _feed(self, channel: Channel, stream: list[Piece], fifo: int, position: Position, skip: int) -> tuple[int, int]:
        def work(write: Write) -> None:
            sequence = messages(objects_by(self._s3), stream, position, skip, channel.format, self._crc)
            write_all(write, sequence, channel.name)

        return fork(work, fifo, self.group)

    def _second(self, one: Offered, guard: Fifo) -> None:
        names = [who.called(pid) for pid in who.readers(guard.end, self._own())]
        state = "has read it"
        if one.pump is not None and one.pump.state == GOING:
            state = "reads it"
            one.reader = next(map(who.called, who.readers(one.write, self._own())), one.reader)
        sentence = f"{guard.path.name} is refused to {names[0] if names else 'a process'}: {one.reader} {state}; " + (
            "a FIFO has one reader, each rank its own channel"
        )
        self._say(sentence)
        guard.turn_away(sentence)

    def _settle(self, ready: set[int]) -> None:
        for pump in [one for one in self._abandoned if one.gone in ready]:
            pump.close()
            self._abandoned.remove(pump)
        for pump in list(self._pumps):
            if pump.state == GOING:
                continue
            reader = next((one.reader for one in self.offered if one.pump is pump), "its reader")
            if pump.state == FAILED:
                self._fail(pump.problem)
                continue  # not closed: its reader blocks until the program is ended
            if pump.state == LEFT:
                self._say(f"{pump.name}: {reader} closed it before its end; the rest of the epoch is not read")
            assert pump.state in (LEFT, ENDED)
            pump.close()
            self._pumps.remove(pump)
