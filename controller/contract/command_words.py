"""Split the command that a person typed into words. Pure, except that `exists` may look at the disk."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from dyntrain.controller.contract.errors import Misconfigured

_OPERATORS = frozenset("();<>|&")
_EXPANDED = frozenset("$`")


def command_words(command: Sequence[str], exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The command's words, ready to run. A single quoted string that is no program is split as a shell would, as
    MXNet's own launcher does. Raises Misconfigured where only a shell could run it, or where only a part is quoted.
    """
    if not command or not any(letter.isspace() for letter in command[0].strip()) or exists(command[0]):
        return tuple(command)
    if len(command) > 1:
        raise Misconfigured(f"there is no program {command[0]!r}: take the quotes away")
    text = command[0]
    try:
        lexer = shlex.shlex(text, posix=False, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        needs_shell = any(set(word) <= _OPERATORS or (set(word) & _EXPANDED and word[0] != "'") for word in lexer)
        words = shlex.split(text)
    except ValueError as error:
        raise Misconfigured(f"the command {text!r} cannot be taken apart ({error}): take the quotes away") from error
    if needs_shell or "=" in words[0]:
        raise Misconfigured(f"the command {text!r} is for a shell: put bash -c in front of it")
    return tuple(words)
