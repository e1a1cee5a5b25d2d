"""Progress messages while a command waits or follows."""

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
    """On a terminal, after two seconds, print what the command is doing: `doing`, then each text that it is given."""
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
    """A context for the part of a command that calls AWS: progress messages, and errors in one line."""
    with one_clear_line(), waiting(doing):
        yield


def follow(show: Callable[[], object], pause: Callable[[float], None] = time.sleep) -> Never:
    """Show news until interrupted. When AWS is unreachable or throttles, that is printed once, and missed news are
    shown later.
    """
    away = False
    while True:
        pause(FOLLOW_SECONDS)
        try:
            show()
            away = False
        except RetryLater as error:
            if not away:
                click.echo(f"AWS cannot be reached or is busy; trying again: {on_one_line(error)}", err=True)
            away = True
