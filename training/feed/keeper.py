"""Creates the FIFOs of all channels, finds the reader of each FIFO, and fills each FIFO with the data of an epoch.

The FIFO of epoch E + 1 exists before the data of epoch E ends, so a reader can open the next FIFO at once.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dyntrain.training.feed import opened as opened_files
from dyntrain.training.feed.channels import PIPE, Channel, rank_of
from dyntrain.training.feed.configuration import write_channel_configuration
from dyntrain.training.feed.contents import ChannelContents
from dyntrain.training.feed.crc import library_crc
from dyntrain.training.feed.dealing import Piece, Position
from dyntrain.training.feed.errands import ChildRequests
from dyntrain.training.feed.feeder import Writer, fork, object_reader, stream_messages, write_all
from dyntrain.training.feed.fifos import ANSWER_SUFFIX, RESUME_SUFFIX, Fifo, delete_old_fifos
from dyntrain.training.feed.offered import FifoOffer, unopened_warnings
from dyntrain.training.feed.places import ChannelError
from dyntrain.training.feed.pump import ENDED, FAILED, GOING, LEFT, Pump
from dyntrain.training.feed.resuming import ResumeRequest, parse_resume_request

LOOK_SECONDS = 0.1  # between checks for resume requests
Say = Callable[[str], None]  # prints a message


class FifoKeeper:
    """Creates, watches and fills all FIFOs of a program.

    `ranks` is the number of ranks at the job's start. `ranks_here` are the ranks on this machine. `problem` is "", or
    the message of an error for which the program must be ended. Use `FifoKeeper` only in a process with a single
    thread, because `FifoKeeper` forks children.
    """

    def __init__(
        self,
        root: Path,
        channels: Sequence[Channel],
        ranks: int,
        ranks_here: range,
        say: Say,
        connect: Callable[[], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root, self._channels, self._ranks_here, self._say, self._clock = root, channels, ranks_here, say, clock
        self._looks_at = clock()
        self.problem = ""
        self.group = 0  # the feeders' process group, once there is a guardian
        self._s3 = connect()
        self._crc = library_crc()
        self._watcher = opened_files.FifoWatcher()
        self._child_requests = ChildRequests(self._set_problem)
        self._contents = ChannelContents(self._s3, self._child_requests, say)
        self._pumps: list[Pump] = []
        self._abandoned: list[Pump] = []  # of resumed epochs: the readers of the old FIFOs get no end of data
        root.mkdir(parents=True, exist_ok=True)
        delete_old_fifos(root)
        self.offered: list[FifoOffer] = []
        for channel in channels:
            if channel.mode != PIPE:
                continue
            self.offered.append(FifoOffer(channel.name, channel, None, None))
            if channel.is_divided:
                self.offered += [FifoOffer(channel.name_of_rank(rank), channel, rank, ranks) for rank in range(ranks)]
            self._contents.start_listing(channel, partial(self._on_listed, channel))
        for entry in self.offered:
            entry.fifo = self._offer_fifo(entry, 0)

    def handle_events(self, at_most_seconds: float) -> None:
        """Wait up to `at_most_seconds` for events of FIFOs and child processes, and handle the events."""
        poller = select.poll()
        for fd in (self._watcher.fileno(), *self._child_requests.pipes):
            poller.register(fd, select.POLLIN)
        pumps_by_fd: dict[int, Pump] = {}
        for pump in (pump for pump in self._pumps if pump.state == GOING):
            fd, for_writing = pump.awaited_descriptor
            poller.register(fd, select.POLLOUT if for_writing else select.POLLIN)
            if not for_writing:
                poller.register(pump.fifo_descriptor, 0)  # errors only
                pumps_by_fd[pump.fifo_descriptor] = pump
        for pump in self._abandoned:
            poller.register(pump.fifo_descriptor, 0)
        ready_descriptors = {fd for fd, _ in poller.poll(int(at_most_seconds * 1000))}
        try:
            for pipe in ready_descriptors & self._child_requests.pipes:
                self._child_requests.read_answer(pipe)
            for fd in ready_descriptors & set(pumps_by_fd):
                pumps_by_fd[fd].hang_up()
            for pump in self._pumps:
                if pump.awaited_descriptor[0] in ready_descriptors:
                    pump.move_data()
            self._close_finished_pumps(ready_descriptors)
            for watch in self._watcher.opened_watches():
                self._handle_watch(watch)
            if self._clock() >= self._looks_at:
                self._looks_at = self._clock() + LOOK_SECONDS
                for path in self.root.glob(f"*{RESUME_SUFFIX}"):
                    self._handle_resume_request(path)
        except ChannelError as error:
            self._set_problem(str(error))
        for sentence in unopened_warnings(self.offered, self._ranks_here, self._clock()):
            self._say(sentence)

    @property
    def is_reading(self) -> bool:
        """Whether a process is reading any of the FIFOs."""
        return any(pump.state == GOING for pump in self._pumps)

    @property
    def is_listing(self) -> bool:
        """Whether the list of objects is still missing for any channel."""
        return not all(self._contents.is_listed(entry.channel) for entry in self.offered)

    def close(self) -> None:
        """Close and delete all FIFOs, once no program reads the FIFOs any more."""
        for pump in (*self._pumps, *self._abandoned):
            pump.close()
        for entry in self.offered:
            for fifo in (entry.fifo, entry.guard):
                if fifo is not None:
                    fifo.withdraw()
            if entry.waits_for_list:
                os.close(entry.write_end)
        self._watcher.close()

    def _set_problem(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _offer_fifo(self, entry: FifoOffer, epoch: int) -> Fifo:
        return Fifo(self.root / f"{entry.name}_{epoch}", self._watcher)

    def _on_listed(self, channel: Channel) -> None:
        for entry in self.offered:
            if entry.waits_for_list and entry.channel is channel:
                entry.waits_for_list = False
                self._start_pump(entry)

    def stream(self, entry: FifoOffer, epoch: int) -> list[Piece]:
        """Return the pieces of objects that a FIFO delivers in an epoch. Raises ChannelError."""
        if epoch in entry.resumed_streams:
            return entry.resumed_streams[epoch]
        return self._contents.streams(entry.channel, entry.ranks, epoch)[entry.rank or 0]

    # ---- ranks that resume an epoch

    def _handle_resume_request(self, path: Path) -> None:
        """Offer the FIFO that a resume request asks for, or leave the request for the next check.

        Raises ChannelError.
        """
        name, content = path.name[: -len(RESUME_SUFFIX)], path.read_bytes()
        if not content:
            return  # still being written
        request = parse_resume_request(name, content)
        entry = self._entry_of_rank(name, request)
        if not self._contents.is_listed(entry.channel):
            return
        streams = self._contents.remaining_streams(entry.channel, request, shared=entry.rank is not None)
        if streams is None:
            return
        self._offer_resumed_epoch(entry, request.epoch, streams[entry.rank or 0])
        answer_file = self.root / f"{name}{ANSWER_SUFFIX}"
        temporary_file = answer_file.with_name(f".{answer_file.name}")
        temporary_file.write_text(self._contents.resume_answer(entry.channel, request).json_text())
        temporary_file.rename(answer_file)
        path.unlink()

    def _entry_of_rank(self, name: str, resume: ResumeRequest) -> FifoOffer:
        """Return the entry in `offered` with this name, or add an entry for a new rank. Raises ChannelError."""
        entry = next((entry for entry in self.offered if entry.name == name), None)
        if entry is None:
            channel_name, rank = rank_of(name) or ("", 0)
            channel_entry = next(
                (entry for entry in self.offered if entry.channel.name == channel_name and entry.channel.is_divided),
                None,
            )
            if channel_entry is None:
                raise ChannelError(f"{name}{RESUME_SUFFIX}: there is no channel {name}")
            entry = FifoOffer(name, channel_entry.channel, rank, resume.ranks)
            self.offered.append(entry)
            write_channel_configuration(self.root, self._channels, resume.ranks)
        is_undivided = entry.rank is None and max(resume.ranks, *map(len, resume.records), 1) > 1
        if is_undivided or (entry.rank or 0) >= resume.ranks:
            raise ChannelError(f"{name}{RESUME_SUFFIX}: a job of {resume.ranks} ranks has no rank that reads {name}")
        if entry.rank is not None:
            entry.ranks = resume.ranks
        return entry

    def _offer_resumed_epoch(self, entry: FifoOffer, epoch: int, stream: list[Piece]) -> None:
        """Create the FIFO for the remaining data of a resumed epoch.

        A process that still reads the epoch's old FIFO gets no more data, and no end of data.
        """
        if entry.pump is not None and entry.pump in self._pumps:
            entry.pump.hang_up()
            self._pumps.remove(entry.pump)
            self._abandoned.append(entry.pump)
        for fifo in (entry.fifo, entry.guard):
            if fifo is not None:
                fifo.withdraw()
        entry.pump = entry.guard = None
        entry.epoch, entry.resumed_streams = epoch, {epoch: stream}
        entry.fifo = self._offer_fifo(entry, epoch)

    # ---- opened FIFOs

    def _handle_watch(self, watch: int) -> None:
        for entry in self.offered:
            if entry.fifo is not None and entry.fifo.watch == watch:
                self._handle_open(entry, entry.fifo)
                return
            if entry.guard is not None and entry.guard.watch == watch:
                self._refuse_second_reader(entry, entry.guard)
                return
        self._watcher.mark_handled(watch)  # of a withdrawn FIFO

    def _handle_open(self, entry: FifoOffer, opened_fifo: Fifo) -> None:
        entry.write_end = opened_fifo.replace_by_guard()
        if entry.guard is not None:
            entry.guard.withdraw()
        entry.guard = opened_fifo
        entry.opened_at = self._clock() if entry.opened_at is None else entry.opened_at
        entry.epoch += 1
        entry.fifo = self._offer_fifo(entry, entry.epoch)
        if self._contents.is_listed(entry.channel):
            self._start_pump(entry)
        else:
            entry.waits_for_list = True

    def _start_pump(self, entry: FifoOffer) -> None:
        """Start to fill the FIFO that a reader has opened.

        Raises ChannelError if several processes opened the FIFO at once, as no process can be refused any more.
        """
        epoch = entry.epoch - 1
        fifo_name = f"{entry.name}_{epoch}"
        reader_pids = opened_files.pids_with_open_file(entry.write_end, self._own_pids())
        entry.reader = opened_files.describe_process(reader_pids[0]) if reader_pids else "a process"
        if len(reader_pids) > 1:
            two_readers = " and ".join(opened_files.describe_process(pid) for pid in reader_pids[:2])
            raise ChannelError(
                f"{fifo_name} was opened by two processes at once, {two_readers}: give each rank its own channel"
            )
        stream = self.stream(entry, epoch)
        entry.pump = Pump(
            fifo_name, stream, entry.write_end, partial(self._start_feeder, entry.channel, stream, entry.write_end)
        )
        self._pumps.append(entry.pump)

    def _own_pids(self) -> set[int]:
        """The pids of this process's children, which also have FIFOs open and are no readers."""
        return {self.group, *self._child_requests.child_pids, *(pump.child_pid for pump in self._pumps)}

    def _start_feeder(
        self, channel: Channel, stream: list[Piece], fifo_end: int, position: Position, skip: int
    ) -> tuple[int, int]:
        def write_messages(write: Writer) -> None:
            messages = stream_messages(object_reader(self._s3), stream, position, skip, channel.format, self._crc)
            write_all(write, messages, channel.name)

        return fork(write_messages, fifo_end, self.group)

    def _refuse_second_reader(self, entry: FifoOffer, guard: Fifo) -> None:
        process_names = [
            opened_files.describe_process(pid)
            for pid in opened_files.pids_with_open_file(guard.descriptor, self._own_pids())
        ]
        reader_state = "has read it"
        if entry.pump is not None and entry.pump.state == GOING:
            reader_state = "reads it"
            entry.reader = next(
                map(opened_files.describe_process, opened_files.pids_with_open_file(entry.write_end, self._own_pids())),
                entry.reader,
            )
        sentence = (
            f"{guard.path.name} is refused to {process_names[0] if process_names else 'a process'}: {entry.reader} "
            f"{reader_state}; " + ("a FIFO has one reader, each rank its own channel")
        )
        self._say(sentence)
        guard.refuse_readers(sentence)

    def _close_finished_pumps(self, ready_descriptors: set[int]) -> None:
        for pump in [pump for pump in self._abandoned if pump.fifo_descriptor in ready_descriptors]:
            pump.close()
            self._abandoned.remove(pump)
        for pump in list(self._pumps):
            if pump.state == GOING:
                continue
            reader = next((entry.reader for entry in self.offered if entry.pump is pump), "its reader")
            if pump.state == FAILED:
                self._set_problem(pump.problem)
                continue  # the FIFO is not closed, so its reader blocks until the program is ended
            if pump.state == LEFT:
                self._say(f"{pump.name}: {reader} closed it before its end; the rest of the epoch is not read")
            assert pump.state in (LEFT, ENDED)
            pump.close()
            self._pumps.remove(pump)
