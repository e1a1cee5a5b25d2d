"""Make text from scripts and machines safe to print on a terminal or in one line. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with a space in place of each control character. Tags, reasons and tracebacks may contain control
    characters.
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable_lines(text: str) -> str:
    """The text with a space in place of each control character except line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def shown_lines(text: str) -> list[str]:
    """The lines that a terminal shows after printing the text. Of a line that was overwritten, such as a progress bar,
    only the last state is kept.
    """
    return [printable(line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in text.rstrip().split("\n")]


def in_brief(reason: str) -> str:  # the first and the last line
    """The first and the last line of the text `reason`, joined to one line. A reason often ends with many lines of
    output of a program.
    """
    lines = [line.strip() for line in shown_lines(reason) if line.strip()]
    return " ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
