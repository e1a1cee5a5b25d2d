"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

RECENT = 14
EPOCHS = 8


class Display(Protocol):
    """Safe to call from any thread."""

    def tell(self, line: str) -> None: ...

    def epoch(self, epoch: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class PlainDisplay:
    def __init__(self) -> None:
        self._began = time.monotonic()

    def tell(self, line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f}  {line}\n")
        sys.stdout.flush()

    def epoch(self, epoch: dict[str, Any]) -> None:
        self.tell(epoch_line(epoch))

    def close(self) -> None:
        """Nothing is held."""


class LiveDisplay:
    def __init__(self, console: Console) -> None:
        self._began, self._lock = time.monotonic(), threading.Lock()
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._epochs: deque[dict[str, Any]] = deque(maxlen=EPOCHS)
        self._live = Live(self._render(), console=console, refresh_per_second=4)
        self._live.start()

    def tell(self, line: str) -> None:
        with self._lock:
            self._recent.append(f"{time.monotonic() - self._began:6.1f}  {line}")
            self._live.update(self._render())

    def epoch(self, epoch: dict[str, Any]) -> None:
        with self._lock:
            self._epochs.append(epoch)
            self._live.update(self._render())

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> Group:
        epochs = Table("epoch", "generation", "workers", "samples/s", "train accuracy", "validation accuracy", title="training")
        for epoch in self._epochs:
            epochs.add_row(
                str(epoch["epoch"]),
                str(epoch["generation"]),
                "■" * epoch["workers"] + f" {epoch['workers']}",
                f"{rate(epoch):.0f}",
                _accuracy(epoch["metrics"].get("train_accuracy")),
                _accuracy(epoch["metrics"].get("val_accuracy")),
            )
        return Group(epochs, *self._recent)


def choose_display() -> Display:
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


def rate(epoch: dict[str, Any]) -> float:
    return epoch["samples"] / epoch["seconds"] if epoch["seconds"] else 0.0


def epoch_line(epoch: dict[str, Any]) -> str:
    metrics = epoch["metrics"]
    accuracy = f"train accuracy {_accuracy(metrics.get('train_accuracy'))} validation {_accuracy(metrics.get('val_accuracy'))}"
    return f"epoch {epoch['epoch']:2d}  generation {epoch['generation']}  workers {epoch['workers']}  {rate(epoch):5.0f} samples/s  {accuracy}"


def _accuracy(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
