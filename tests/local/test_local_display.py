"""The demo's picture, which the README shows: it must say what the terminal said."""

from __future__ import annotations

import html
import re
from pathlib import Path

from dyntrain.controller.local.demo.display import PictureDisplay
from dyntrain.training.events import Segment

EPOCH = Segment.model_construct(
    epoch=3,
    generation=2,
    workers=3,
    samples=1500,
    seconds=2.0,
    metrics={"train_accuracy": 0.75, "val_accuracy": 0.5},
)


class Terminal:
    def __init__(self) -> None:
        self.said: list[str] = []

    def tell(self, line: str) -> None:
        self.said.append(line)

    def epoch(self, epoch: Segment) -> None:
        self.said.append(str(epoch.epoch))

    def close(self) -> None:
        self.said.append("closed")


def test_the_picture_says_what_the_terminal_said_also_what_looks_like_markup(tmp_path: Path) -> None:
    terminal, picture = Terminal(), tmp_path / "new" / "demo.svg"
    display = PictureDisplay(terminal, picture)
    display.tell("> delete-tags i-1 [bold]<demo>")
    display.epoch(EPOCH)
    display.close()
    assert terminal.said == ["> delete-tags i-1 [bold]<demo>", "3", "closed"]
    shown = " ".join(html.unescape(re.sub("<[^>]*>", "", picture.read_text())).split())
    assert "> delete-tags i-1 [bold]<demo>" in shown
    assert "750 samples/s" in shown
    assert "validation 0.500" in shown
