"""What is shown of a job: the demo's picture, which the README shows, must say what the terminal said."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.demo.display import PatientDisplay, PictureDisplay, PlainDisplay, epoch_line
from dyntrain.training.events import Segment
from dyntrain.training.protocol.messages import Position
from waiting import wait_for

EPOCH = Segment.model_construct(
    epoch=3,
    end=Position(epoch=4, offset=0, step=60),
    generation=2,
    workers=3,
    samples=1500,
    seconds=2.0,
    metrics={"train_accuracy": 0.75, "val_accuracy": 0.5},
)


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_line(self, line: str) -> None:
        self.lines.append(line)

    def show_epoch(self, epoch: Segment) -> None:
        self.lines.append(str(epoch.epoch))

    def close(self) -> None:
        self.lines.append("closed")


def test_the_picture_says_what_the_terminal_said_also_what_looks_like_markup(tmp_path: Path) -> None:
    terminal, picture = Terminal(), tmp_path / "new" / "demo.svg"
    display = PictureDisplay(terminal, picture)
    display.show_line("> delete-tags i-1 [bold]<demo>")
    display.show_epoch(EPOCH)
    display.close()
    assert terminal.lines == ["> delete-tags i-1 [bold]<demo>", "3", "closed"]
    shown = " ".join(html.unescape(re.sub("<[^>]*>", "", picture.read_text())).split())
    assert "> delete-tags i-1 [bold]<demo>" in shown
    assert "750 samples/s" in shown
    assert "validation 0.500" in shown


def test_an_epoch_has_every_metric_that_its_script_records() -> None:
    """A person's own were left out, and the demo's stood there with a dash."""
    own = EPOCH.model_copy(update={"metrics": {"F1": 0.123456, "perplexity": 345.67891, "diverged": float("nan")}})
    line = epoch_line(own)
    assert line.endswith("F1 0.1235  perplexity 345.7  diverged nan")
    assert "validation" not in line
    assert epoch_line(own.model_copy(update={"metrics": {"\x1b[2Jloss": 1.0}})).endswith(" [2Jloss 1")


def test_a_part_of_an_epoch_is_told_as_one() -> None:
    half = EPOCH.model_copy(update={"end": Position(epoch=3, offset=700, step=30)})
    assert epoch_line(half).startswith("epoch  3 up to sample 700  generation 2")


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nohup dyntrain local up` outlives its terminal, and so does its story."""

    class Gone:
        def write(self, text: str) -> None:
            raise OSError(5, "Input/output error")

        def flush(self) -> None: ...

    display = PlainDisplay()
    monkeypatch.setattr(sys, "stdout", Gone())
    display.show_line("i-1 joined")


def test_whenever_nothing_else_is_said_what_is_being_done_is(tmp_path: Path) -> None:
    """A newcomer would take the silence for a hang."""
    terminal, picture = Terminal(), tmp_path / "demo.svg"
    display = PatientDisplay(PictureDisplay(terminal, picture), quiet_seconds=0.02)
    display.show_line("embedded cloud")
    display.set_activity("until the base nodes train")
    wait_for(lambda: terminal.lines.count("... until the base nodes train") >= 2)
    display.set_activity("")
    display.show_epoch(EPOCH)
    display.close()
    lines = list(terminal.lines)
    assert lines[-1] == "closed"
    assert lines[0] == "embedded cloud"
    assert "until the base nodes" not in html.unescape(picture.read_text()).replace("\xa0", " "), "it is no news"


def test_while_there_is_news_nothing_is_said_between() -> None:
    terminal = Terminal()
    display = PatientDisplay(terminal, quiet_seconds=1e6)
    display.set_activity("until it is done")
    for _ in range(50):
        display.show_line("news")
    display.close()
    assert set(terminal.lines) == {"news", "closed"}
