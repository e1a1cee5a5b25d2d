"""Split a typed command into words. Pure, except that the callback `exists` may read the disk."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from dyntrain.controller.contract.errors import Misconfigured

_OPERATORS = frozenset("();<>|&")
_EXPANDED = frozenset("$`")


def command_words(command: Sequence[str], exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The words of the command, with which it can be executed without a shell. Raises Misconfigured when only a shell
    could run the command, or when only a part of the command is quoted.

    A single quoted string that names no program is split by the rules of a shell, as MXNet's launcher does.
    """
    if not command or not any(letter.isspace() for letter in command[0].strip()) or exists(command[0]):
        return tuple(command)
    if len(command) > 1:
        raise Misconfigured(f"there is no program {command[0]!r}: remove the quotes")
    text = command[0]
    try:
        lexer = shlex.shlex(text, posix=False, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        needs_shell = any(set(word) <= _OPERATORS or (set(word) & _EXPANDED and word[0] != "'") for word in lexer)
        words = shlex.split(text)
    except ValueError as error:
        raise Misconfigured(f"the command {text!r} cannot be split into words ({error}): remove the quotes") from error
    if needs_shell or "=" in words[0]:
        raise Misconfigured(f"the command {text!r} needs a shell: put bash -c in front of it")
    return tuple(words)
