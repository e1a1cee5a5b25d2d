"""Progress messages of a command that waits, and the loop of a command that shows new data until interrupted."""

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

FOLLOW_SECONDS = 2.0  # between two outputs of a command with --follow
SILENT_SECONDS = 2.0  # before the first progress message
POLL_SECONDS = 0.2  # between two checks for a new progress message


@contextmanager
def waiting(doing: str, to: TextIO | None = None, silent: float = SILENT_SECONDS) -> Iterator[Callable[[str], None]]:
    """A context that prints the progress message `doing` on a terminal after `silent` seconds. Calls of the function
    that the context yields replace the progress message.
    """
    terminal = to or sys.stderr
    current_text, stop_event = [doing], threading.Event()

    def print_progress() -> None:
        printed_text, pause_seconds = "", silent
        while not stop_event.wait(pause_seconds):
            if current_text[0] != printed_text:
                printed_text, pause_seconds = current_text[0], POLL_SECONDS
                click.echo(f"{printable(printed_text)} ...", file=terminal)

    if not terminal.isatty():
        yield lambda _next: None
        return
    printer_thread = threading.Thread(target=print_progress, daemon=True)
    printer_thread.start()
    try:
        yield lambda text: current_text.__setitem__(0, text)
    finally:
        stop_event.set()
        printer_thread.join()


@contextmanager
def calling_aws(doing: str) -> Iterator[None]:
    """A context for calls of AWS that prints a progress message, and prints an error as one line."""
    with errors_on_one_line(), waiting(doing):
        yield


def follow(show: Callable[[], object], pause: Callable[[float], None] = time.sleep) -> Never:
    """Call `show` repeatedly until the command is interrupted. If AWS is unreachable or throttles calls, one message is
    printed, and `show` is called again later.
    """
    aws_was_unreachable = False
    while True:
        pause(FOLLOW_SECONDS)
        try:
            show()
            aws_was_unreachable = False
        except RetryLater as error:
            if not aws_was_unreachable:
                click.echo(f"AWS cannot be reached or is busy; trying again: {on_one_line(error)}", err=True)
            aws_was_unreachable = True
