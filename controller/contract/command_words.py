"""Split a user's command into words, that is, into the program and its arguments. Pure, except that the callback
`exists` may read the disk.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from dyntrain.controller.contract.errors import Misconfigured

_SHELL_OPERATORS = frozenset("();<>|&")
_EXPANSION_CHARACTERS = frozenset("$`")


def command_words(command: Sequence[str], exists: Callable[[str], bool]) -> tuple[str, ...]:
    """The words of the command, with which the command can be executed without a shell. Raises Misconfigured if only a
    shell can run the command, or if only a part of the command is quoted.

    A command that is a single quoted string and names no program is split by the rules of a shell, as MXNet's launcher
    does.
    """
    if not command or not any(letter.isspace() for letter in command[0].strip()) or exists(command[0]):
        return tuple(command)
    if len(command) > 1:
        raise Misconfigured(f"the command cannot be run, because there is no program {command[0]!r}: remove the quotes")
    quoted_command = command[0]
    try:
        lexer = shlex.shlex(quoted_command, posix=False, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        needs_shell = any(
            set(word) <= _SHELL_OPERATORS or (set(word) & _EXPANSION_CHARACTERS and word[0] != "'") for word in lexer
        )
        command_parts = shlex.split(quoted_command)
    except ValueError as error:
        raise Misconfigured(
            f"the command {quoted_command!r} cannot be split into words ({error}): remove the quotes"
        ) from error
    if needs_shell or "=" in command_parts[0]:
        raise Misconfigured(f"the command {quoted_command!r} needs a shell: put bash -c in front of it")
    return tuple(command_parts)
