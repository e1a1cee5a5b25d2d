"""Describe a job's events in lines, for a user who watches the demo or `dyntrain local up`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dyntrain.controller.contract.plain_text import in_brief, shown_lines
from dyntrain.controller.local.demo.display import Display
from dyntrain.training import events
from dyntrain.training.coordinator.progress import describe

TROUBLE = (
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


class Telling:
    """Show a job's events. `log_of` gives the log file of an instance's worker. `afterwards` is a hint that is shown
    when the job is over. Quick epochs are shown once in `every` seconds, besides the first epoch of each generation and
    the last epoch.
    """

    def __init__(
        self,
        display: Display,
        log_of: Callable[[str], Path | None] = lambda instance: None,
        afterwards: str = "",
        every: float = 0.0,
    ) -> None:
        self._display, self._log_of, self._afterwards, self._every = display, log_of, afterwards, every
        self._last: events.Segment | None = None  # the last epoch that was shown
        self._passed: events.Segment | None = None  # the latest epoch, if it was not shown
        self._shown = ""  # the last line of the last script output
        self._trains = self._failed = ""  # an instance that trains, and the instance of the last trouble

    def hear(self, event: events.Event) -> None:
        match event:
            case events.Segment():
                self._trains = next(iter(event.pids), self._trains)
                self._epoch(event)
            case events.Pause():
                self._display.tell(f"survivors paused {event.seconds:.2f} s for generation {event.generation}")
            case events.Joined() | events.Left():
                joined = f"{event.instance}  {event.event} (worker pid {event.pid}, generation {event.generation})"
                self._display.tell(joined)
            case events.Finished(position=at):
                self._over(f"the job has finished after {at.epoch} epochs, at step {at.step}", self._trains)
            case events.Failed():
                *more, last = shown_lines(event.reason)
                if more and last.strip() != self._shown:
                    self._words(f"the job fails: {event.reason}")
                self._over(f"the job failed: {in_brief(event.reason)}", self._failed or self._trains)
            case _ if isinstance(event, TROUBLE):
                self._failed = getattr(event, "instance", self._failed)
                self._words(describe(event))

    def _epoch(self, epoch: events.Segment) -> None:
        last = self._last
        if last is not None and epoch.generation == last.generation and 0 <= epoch.at - last.at < self._every:
            self._passed = epoch
            return
        self._display.epoch(epoch)
        self._last, self._passed = epoch, None

    def _words(self, text: str) -> None:
        """Show a script's output in full the first time, and in brief if the script repeats it, as after a restart."""
        lines = shown_lines(text)
        if len(lines) > 1 and lines[-1].strip() == self._shown:
            lines = [in_brief(text)]
        elif len(lines) > 1:
            self._shown = lines[-1].strip()
        for line in lines[:1]:
            self._display.tell(line)
        for line in lines[1:]:
            self._display.tell(f"    {line}")

    def _over(self, how: str, instance: str) -> None:
        """Show the job's end. The last line has the reason and the log."""
        if self._passed is not None:
            self._display.epoch(self._passed)
        self._last = self._passed = None
        if self._afterwards:
            self._display.tell(self._afterwards)
        log = self._log_of(instance)
        self._display.tell(how if log is None else f"{how}; its log: {log}")
