"""Make the text of scripts and machines safe for a terminal or for one line. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with spaces in place of control characters, which tags, reasons and tracebacks may contain."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable_lines(text: str) -> str:
    """The text after `printable` was applied to each line."""
    return "\n".join(map(printable, text.split("\n")))


def shown_lines(text: str) -> list[str]:
    """The lines that a terminal finally shows. Only the last state of an overwritten line, such as a progress bar,
    remains.
    """
    return [printable(line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in text.rstrip().split("\n")]


def in_brief(reason: str) -> str:
    """One line for a reason that ends with a program's output: the first and the last line of the reason."""
    lines = [line.strip() for line in shown_lines(reason) if line.strip()]
    return " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
