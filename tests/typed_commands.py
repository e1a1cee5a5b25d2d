"""What is typed, read by the real command line, and not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import click
from dyntrain.controller.cli.main import main
from dyntrain.training.launch.plan import is_for_cluster


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*path, name))


def parsed(line: str) -> str:
    """Which command the line means. Raises click's error for what it does not take."""
    return parsed_words(shlex.split(line)[1:])


def parsed_words(arguments: Sequence[str]) -> str:
    """`arguments`: what follows `dyntrain`. The options of `launch`, which argparse reads, are read by it."""
    command: click.Command | None = main
    path, context, rest = list[str](), None, list(arguments)
    while True:
        assert command is not None
        if path == ["launch"]:
            is_for_cluster(rest, None)
        context = command.make_context(command.name, rest, parent=context)
        if not isinstance(command, click.Group):
            return " ".join(path)
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        path.append(str(name))
