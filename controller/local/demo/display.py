"""The demo's display: a live table if the output is a terminal, otherwise plain lines. On request, all lines are also
written to an SVG picture.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dyntrain.controller.contract.plain_text import printable
from dyntrain.training.events import Segment
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

RECENT_LINES = 14  # latest lines that the live display shows
EPOCH_ROWS = 8  # latest epochs that the live table shows
PICTURE_COLUMNS = 112  # width of the SVG picture in characters
QUIET_SECONDS = 2.0  # time without a line after which the current activity is shown again
PROGRESS_PREFIX = "... "  # prefix of repeated progress lines, which a picture leaves out
METRIC_NAMES = {"train_accuracy": "train accuracy", "val_accuracy": "validation"}  # shown names of the demo's metrics


class Display(Protocol):
    """Show text lines and the results of epochs to a user. Any thread may call the methods of a display."""

    def show_line(self, line: str) -> None: ...

    def show_epoch(self, epoch: Segment) -> None: ...

    def close(self) -> None: ...


class PlainDisplay:
    """Print plain lines. When the terminal was closed, further lines are dropped without an error."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def show_line(self, line: str) -> None:
        with suppress(OSError):
            sys.stdout.write(f"{time.monotonic() - self._began:6.1f}  {line}\n")
            sys.stdout.flush()

    def show_epoch(self, epoch: Segment) -> None:
        self.show_line(epoch_line(epoch))

    def close(self) -> None:
        """Do nothing, because a plain display holds no resources."""


class LiveDisplay:
    def __init__(self, console: Console) -> None:
        self._began, self._lock = time.monotonic(), threading.Lock()
        self._recent_lines: deque[str] = deque(maxlen=RECENT_LINES)
        self._epochs: deque[Segment] = deque(maxlen=EPOCH_ROWS)
        self._live = Live(self._render(), console=console, refresh_per_second=4)
        self._live.start()

    def show_line(self, line: str) -> None:
        with self._lock:
            self._recent_lines.append(f"{time.monotonic() - self._began:6.1f}  {line}")
            self._live.update(self._render())

    def show_epoch(self, epoch: Segment) -> None:
        with self._lock:
            self._epochs.append(epoch)
            self._live.update(self._render())

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> Group:
        epoch_table = Table(
            "epoch", "generation", "workers", "samples/s", "train accuracy", "validation accuracy", title="training"
        )
        for epoch in self._epochs:
            epoch_table.add_row(
                str(epoch.epoch),
                str(epoch.generation),
                "■" * epoch.workers + f" {epoch.workers}",
                f"{epoch.rate:.0f}",
                _accuracy_text(epoch.metrics.get("train_accuracy")),
                _accuracy_text(epoch.metrics.get("val_accuracy")),
            )
        return Group(epoch_table, *self._recent_lines)


class PictureDisplay:
    """Show everything on `inner_display`. `close` writes all lines except repeated progress lines to the SVG file
    `picture`.
    """

    def __init__(self, inner_display: Display, picture: Path) -> None:
        self._inner_display, self._picture, self._began = inner_display, picture, time.monotonic()
        self._recorder = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), highlight=False)

    def show_line(self, line: str) -> None:
        self._inner_display.show_line(line)
        if not line.startswith(PROGRESS_PREFIX):
            self._record_line(line, "bold" if line.startswith(">") else "")

    def show_epoch(self, epoch: Segment) -> None:
        self._inner_display.show_epoch(epoch)
        self._record_line(epoch_line(epoch), "cyan")

    def close(self) -> None:
        self._inner_display.close()
        self._picture.parent.mkdir(parents=True, exist_ok=True)
        self._recorder.save_svg(str(self._picture), title="make demo")

    def _record_line(self, line: str, style: str) -> None:
        self._recorder.print(f"{time.monotonic() - self._began:6.1f}  {line}", style=style, markup=False)


class PatientDisplay:
    """Show everything on `inner_display`, and a line with the current activity whenever nothing was shown for
    `quiet_seconds`.
    """

    def __init__(self, inner_display: Display, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._inner_display, self._quiet_seconds = inner_display, quiet_seconds
        self._activity, self._last_shown = "", time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._repeat_activity, name="display-activity", daemon=True)
        self._thread.start()

    def set_activity(self, activity: str) -> None:
        """Set the current activity, which is shown again while nothing else is shown; "" means no activity."""
        self._activity = activity

    def show_line(self, line: str) -> None:
        self._last_shown = time.monotonic()
        self._inner_display.show_line(line)

    def show_epoch(self, epoch: Segment) -> None:
        self._last_shown = time.monotonic()
        self._inner_display.show_epoch(epoch)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._inner_display.close()

    def _repeat_activity(self) -> None:
        while not self._closed.wait(self._quiet_seconds / 8):
            if self._activity and time.monotonic() - self._last_shown >= self._quiet_seconds:
                self.show_line(f"{PROGRESS_PREFIX}{self._activity}")


def choose_display(picture: Path | None = None) -> PatientDisplay:
    console = Console()
    inner_display: Display = LiveDisplay(console) if console.is_terminal else PlainDisplay()
    return PatientDisplay(inner_display if picture is None else PictureDisplay(inner_display, picture))


def epoch_line(epoch: Segment) -> str:
    """A line of text with the number, workers, speed and metrics of an epoch. If the epoch has not ended, the line
    names the sample that the job has reached.
    """
    metrics_text = "  ".join(_metric_text(name, value) for name, value in epoch.metrics.items())
    part_text = f" up to sample {epoch.end.offset}" if epoch.end.offset else ""
    workers_text = f"generation {epoch.generation}  workers {epoch.workers}"
    return printable(
        f"epoch {epoch.epoch:2d}{part_text}  {workers_text}  {epoch.rate:5.0f} samples/s  {metrics_text}".rstrip()
    )


def _metric_text(name: str, value: float) -> str:
    return f"{METRIC_NAMES[name]} {_accuracy_text(value)}" if name in METRIC_NAMES else f"{name} {value:.4g}"


def _accuracy_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
