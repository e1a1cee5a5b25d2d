"""Find `break` and `return` statements that would leave the loop over epochs, before the script trains.

If one worker leaves the loop, the other workers wait for it at their batch, and a joiner does not know that the job is
over. Only the running script shows whether it reaches such a statement: see `leaving`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dyntrain.training.worker.script.source import LOOPS, SCOPES, Advice, Site


def leavings(site: Site, tree: ast.Module) -> Iterator[Advice]:
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and begins(loop, site.line):
            epoch = names_in(loop.target)
            for what, over, line in _leaves(loop.body, site, epoch, "job.epochs()"):
                yield "DT601", line, (("what", what), ("loop", over))


def begins(loop: ast.For, line: int) -> bool:
    within = loop.iter.lineno <= line <= (loop.iter.end_lineno or loop.iter.lineno)
    return within and any(isinstance(node, ast.Attribute) and node.attr == "epochs" for node in ast.walk(loop.iter))


def _leaves(
    body: Sequence[ast.AST], site: Site, epoch: set[str], over: str, own: bool = True
) -> Iterator[tuple[str, str, int]]:
    """Yield each statement, the loop that it leaves, and its line.

    `own`: whether a `break` in `body` leaves a loop that all workers run.
    """
    for node in body:
        if isinstance(node, ast.Return):
            yield "return", "job.epochs()", node.lineno
        elif isinstance(node, ast.Break) and own:
            yield "break", over, node.lineno
        elif isinstance(node, LOOPS):
            batches = isinstance(node, ast.For) and is_of_batches(node.iter, site, epoch)
            yield from _leaves(node.body, site, epoch, "the batches of an epoch", batches)
            yield from _leaves(node.orelse, site, epoch, over, own)
        elif not isinstance(node, SCOPES):
            yield from _leaves([*ast.iter_child_nodes(node)], site, epoch, over, own)


def names_in(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def is_of_batches(expression: ast.expr, site: Site, epoch: set[str]) -> bool:
    """Whether an expression iterates over an epoch's batches, or over a loader of the job."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in ("batches", "enumerate", "indices"):
            if isinstance(node.value, ast.Name) and node.value.id in epoch:
                return True
        elif isinstance(node, ast.Name) and node.id in site.loader_names:
            return True
    return False
