"""Words of scripts and machines, made fit for a terminal and for a line. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """On one line, without what a terminal would obey: tags, reasons and tracebacks come from scripts and machines."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable_lines(text: str) -> str:
    """The same, line by line."""
    return "\n".join(map(printable, text.split("\n")))


def shown_lines(text: str) -> list[str]:
    """As a terminal shows them in the end: of a line that was written anew, as a bar of progress is, the last state."""
    return [printable(line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in text.rstrip().split("\n")]


def in_brief(reason: str) -> str:
    """A reason that ends with what a program wrote, on one line: how it begins, and the last line that was written."""
    lines = [line.strip() for line in shown_lines(reason) if line.strip()]
    return " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
