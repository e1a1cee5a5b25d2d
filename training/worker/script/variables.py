"""Variables of a script that a worker that joins has otherwise, as the source shows them: told of in the log.

What goes from epoch to epoch, or from batch to batch, in one (`best`, `patience`, a counter) begins there with its
value above the loop, and `enumerate` over batches begins at 0. Neither matters where it is only printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dyntrain.training.worker.script.left_early import begins, is_of_batches, names_in
from dyntrain.training.worker.script.parts import assignments, calls, name_called
from dyntrain.training.worker.script.reads import Reads
from dyntrain.training.worker.script.source import Advice, Site

COUNTS = {"enumerate", "zip"}


def of_variables(site: Site, tree: ast.Module) -> Iterator[Advice]:
    """Changes the tree."""
    reads = Reads(tree)
    for loop in [node for node in ast.walk(tree) if isinstance(node, ast.For) and begins(node, site.line)]:
        yield from _of_loop(site, tree, reads, loop)


def _of_loop(site: Site, tree: ast.Module, reads: Reads, loop: ast.For) -> Iterator[Advice]:
    line, epoch = loop.lineno, names_in(loop.target)
    _put_in(loop)
    batches = [each for each in ast.walk(loop) if isinstance(each, ast.For) and is_of_batches(each.iter, site, epoch)]
    found = list(dict.fromkeys(name for each in (loop, *batches) for name in reads.carried(each)))
    for name in (each for each in found if each in reads.generators):
        yield "DT610", line, (("name", name),)
    if others := [each for each in found if each not in reads.generators]:
        yield "DT604", line, _named(others)
    if later := [each for each in reads.used_later(tree, loop) if each not in found]:
        yield "DT611", line, _named(later)
    if any(name_called(call) == "zip" for call in calls(loop.iter)):
        yield "DT608", line, ()
    if number := reads.number_used(loop):
        yield "DT609", line, (("name", number),)
    for each in batches:
        if any(name_called(call) == "zip" for call in calls(each.iter)):
            yield "DT607", each.lineno, ()
        if number := reads.number_used(each):
            yield "DT605", each.lineno, (("name", number),)


def _put_in(loop: ast.For) -> None:
    """In place: what batches are counted by, where that has a name (`bar = enumerate(...)`)."""
    named = {to.id: value for to, value in assignments(loop) if isinstance(to, ast.Name)}
    counted = {name: value for name, value in named.items() if COUNTS & set(map(name_called, calls(value)))}
    for each in ast.walk(loop):
        if isinstance(each, ast.For) and counted:
            each.iter = _InPlace(counted).visit(each.iter)


class _InPlace(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # as the library calls it
        return self._values.get(node.id, node)


def _named(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    memory = ", ".join(f"{re.split('[.[]', name.rstrip(']'))[-1]}=..." for name in names)
    return ("names", ", ".join(names)), ("memory", memory)
