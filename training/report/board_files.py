"""Write a job's curves and texts to event files for TensorBoard. This module needs the package `tensorboard`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dyntrain.training.report.board import Entry, Rollback, Scalar, Text
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

SUFFIX = ".dyntrain"  # ending of the names of the event files
FLUSH_SECONDS = 2


class BoardFiles:
    """Writer of a job's event files for TensorBoard in `folder`.

    Event files that this class wrote to the folder earlier are deleted, so that TensorBoard shows no curve twice.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder if necessary, and begin a new event file. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        earlier_files = set(folder.glob(f"events.out.tfevents.*{SUFFIX}"))
        self._writer = EventFileWriter(str(folder), flush_secs=FLUSH_SECONDS, filename_suffix=SUFFIX)
        self.write([Rollback(0.0, 0)])  # TensorBoard takes the first START for the beginning, not for a restart
        for file in earlier_files:
            file.unlink(missing_ok=True)

    def write(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._writer.add_event(_tensorboard_event(entry))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _tensorboard_event(entry: Entry) -> Any:
    if isinstance(entry, Scalar):
        return Event(wall_time=entry.at, step=entry.step, summary=scalar_pb(entry.tag, entry.value))
    if isinstance(entry, Text):
        return Event(wall_time=entry.at, step=entry.step, summary=text_pb(entry.tag, entry.text))
    # A START makes TensorBoard drop its data from this step on, as after a restart from a checkpoint
    return Event(wall_time=entry.at, step=entry.step, session_log=SessionLog(status=SessionLog.START))
