"""Progress messages of a waiting command, and the loop of a command that follows news."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Never, TextIO

import click
from dyntrain.controller.cli.shell.errors import errors_on_one_line, on_one_line
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import RetryLater

FOLLOW_SECONDS = 2.0
SILENT_SECONDS = 2.0
POLL_SECONDS = 0.2


@contextmanager
def waiting(doing: str, to: TextIO | None = None, silent: float = SILENT_SECONDS) -> Iterator[Callable[[str], None]]:
    """Print on a terminal, after `silent` seconds, the text `doing`; the function returned replaces that text."""
    terminal = to or sys.stderr
    current_text, stop_event = [doing], threading.Event()

    def print_progress() -> None:
        printed_text, pause = "", silent
        while not stop_event.wait(pause):
            if current_text[0] != printed_text:
                printed_text, pause = current_text[0], POLL_SECONDS
                click.echo(f"{printable(printed_text)} ...", file=terminal)

    if not terminal.isatty():
        yield lambda _next: None
        return
    printer = threading.Thread(target=print_progress, daemon=True)
    printer.start()
    try:
        yield lambda text: current_text.__setitem__(0, text)
    finally:
        stop_event.set()
        printer.join()


@contextmanager
def calling_aws(doing: str) -> Iterator[None]:
    """A context for calls of AWS, which prints progress, and prints errors as one line."""
    with errors_on_one_line(), waiting(doing):
        yield


def follow(show: Callable[[], object], pause: Callable[[float], None] = time.sleep) -> Never:
    """Call `show` repeatedly until interrupted. When AWS is unreachable or throttles, one message says so; later calls
    of `show` catch up.
    """
    unreachable = False
    while True:
        pause(FOLLOW_SECONDS)
        try:
            show()
            unreachable = False
        except RetryLater as error:
            if not unreachable:
                click.echo(f"AWS cannot be reached or is busy; trying again: {on_one_line(error)}", err=True)
            unreachable = True
