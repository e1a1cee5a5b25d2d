"""What a person who waits is told: what a command is at, and what comes with time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never, TextIO

import click
from dyntrain.controller.cli.shell.errors import on_one_line, one_clear_line
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import RetryLater

FOLLOW_SECONDS = 2.0
SILENT_SECONDS = 2.0
LOOK_SECONDS = 0.2


@contextmanager
def waiting(doing: str, to: TextIO | None = None, silent: float = SILENT_SECONDS) -> Iterator[Callable[[str], None]]:
    """On a terminal, what takes more than two seconds says what it is at: `doing`, then what it is told to say next."""
    terminal = to or sys.stderr
    at, over = [doing], threading.Event()

    def tell() -> None:
        shown, pause = "", silent
        while not over.wait(pause):
            if at[0] != shown:
                shown, pause = at[0], LOOK_SECONDS
                click.echo(f"{printable(shown)} ...", file=terminal)

    if not terminal.isatty():
        yield lambda _next: None
        return
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda what: at.__setitem__(0, what)
    finally:
        over.set()
        teller.join()


@contextmanager
def asking(doing: str) -> Iterator[None]:
    """What a command does that asks AWS and is over then."""
    with one_clear_line(), waiting(doing):
        yield


def follow(show: Callable[[], object], pause: Callable[[float], None] = time.sleep) -> Never:
    """Until interrupted. Where AWS is away for a while or throttles, that is said once, and what came meanwhile is
    shown afterwards.
    """
    away = False
    while True:
        pause(FOLLOW_SECONDS)
        try:
            show()
            away = False
        except RetryLater as error:
            if not away:
                click.echo(f"AWS cannot be reached or is busy; it is asked again: {on_one_line(error)}", err=True)
            away = True
