"""Make text of scripts and machines safe for a terminal, or for one line. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line without control characters: tags, reasons and tracebacks come from scripts and machines."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable_lines(text: str) -> str:
    """As `printable`, line by line."""
    return "\n".join(map(printable, text.split("\n")))


def shown_lines(text: str) -> list[str]:
    """The lines as a terminal shows them at the end: of a line that was overwritten, as a progress bar is, the last
    state.
    """
    return [printable(line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in text.rstrip().split("\n")]


def in_brief(reason: str) -> str:
    """One line for a reason that ends with a program's output: its first line and its last."""
    lines = [line.strip() for line in shown_lines(reason) if line.strip()]
    return " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
