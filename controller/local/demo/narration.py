"""Describe a job's events in lines of text, for a user who watches the demo or `dyntrain local up`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dyntrain.controller.contract.plain_text import in_brief, shown_lines
from dyntrain.controller.local.demo.display import Display
from dyntrain.training import events
from dyntrain.training.coordinator.progress import describe

TROUBLE_EVENTS = (
    events.WorkerLost,
    events.WorkerRefused,
    events.ScriptFailed,
    events.CoolingDown,
    events.Readmitted,
    events.Restart,
    events.Takeover,
    events.NodeNotice,
    events.CommitFailed,
    events.CommitUnreadable,
    events.SafeStateUnreadable,
    events.TargetRefused,
    events.Stalled,
    events.StallOver,
)


class Narrator:
    """Show a job's events to a user. The function `log_of` returns the log file of an instance's worker, or None.
    `end_hint` is a text that is shown when the job has ended. At most one epoch is shown per `epoch_seconds`. The first
    epoch of each generation and the last epoch of the job are always shown.
    """

    def __init__(
        self,
        display: Display,
        log_of: Callable[[str], Path | None] = lambda instance: None,
        end_hint: str = "",
        epoch_seconds: float = 0.0,
    ) -> None:
        self._display, self._log_of, self._end_hint, self._epoch_seconds = display, log_of, end_hint, epoch_seconds
        self._last_shown_epoch: events.Segment | None = None  # the last epoch that was shown
        self._skipped_epoch: events.Segment | None = None  # the latest epoch, if it was not shown
        self._last_output_line = ""  # the last line of the last script output
        self._training_instance = ""  # an instance that trains
        self._failed_instance = ""  # the instance of the last trouble

    def show_event(self, event: events.Event) -> None:
        match event:
            case events.Segment():
                self._training_instance = next(iter(event.pids), self._training_instance)
                self._show_epoch(event)
            case events.Pause():
                self._display.show_line(
                    f"remaining workers paused {event.seconds:.2f} s for generation {event.generation}"
                )
            case events.Joined() | events.Left():
                line = f"{event.instance}  {event.event} (worker pid {event.pid}, generation {event.generation})"
                self._display.show_line(line)
            case events.Finished(position=position):
                self._show_end(
                    f"the job has finished after {position.epoch} epochs, at step {position.step}",
                    self._training_instance,
                )
            case events.Failed():
                *earlier_lines, last_line = shown_lines(event.reason)
                if earlier_lines and last_line.strip() != self._last_output_line:
                    self._show_output(f"the job fails: {event.reason}")
                self._show_end(
                    f"the job failed: {in_brief(event.reason)}", self._failed_instance or self._training_instance
                )
            case _ if isinstance(event, TROUBLE_EVENTS):
                self._failed_instance = getattr(event, "instance", self._failed_instance)
                self._show_output(describe(event))

    def _show_epoch(self, epoch: events.Segment) -> None:
        last_epoch = self._last_shown_epoch
        if (
            last_epoch is not None
            and epoch.generation == last_epoch.generation
            and 0 <= epoch.at - last_epoch.at < self._epoch_seconds
        ):
            self._skipped_epoch = epoch
            return
        self._display.show_epoch(epoch)
        self._last_shown_epoch, self._skipped_epoch = epoch, None

    def _show_output(self, text: str) -> None:
        """Show the output of a failed script. The first output is shown in full, and a repeated output, as after a
        restart, is shown in brief.
        """
        lines = shown_lines(text)
        if len(lines) > 1 and lines[-1].strip() == self._last_output_line:
            lines = [in_brief(text)]
        elif len(lines) > 1:
            self._last_output_line = lines[-1].strip()
        for line in lines[:1]:
            self._display.show_line(line)
        for line in lines[1:]:
            self._display.show_line(f"    {line}")

    def _show_end(self, ending: str, instance: str) -> None:
        """Show that the job has ended. The last shown line has the reason for the job's end and the path of the
        worker's log file, if the file exists.
        """
        if self._skipped_epoch is not None:
            self._display.show_epoch(self._skipped_epoch)
        self._last_shown_epoch = self._skipped_epoch = None
        if self._end_hint:
            self._display.show_line(self._end_hint)
        log_path = self._log_of(instance)
        self._display.show_line(ending if log_path is None else f"{ending}; its log: {log_path}")
