"""Find, before the script trains, `break` and `return` statements that would leave the loop over epochs.

If one worker leaves the loop, the other workers wait for the missing worker, and a worker that joins does not know that
the job is over. The source does not show whether the script will reach a `break`. If the script leaves its loop, the
module `leaving` handles the case.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dyntrain.training.worker.script.source import LOOPS, SCOPES, Advice, Site


def leaving_statements(site: Site, tree: ast.Module) -> Iterator[Advice]:
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and is_epoch_loop_at(loop, site.line):
            epoch_names = variable_names_in(loop.target)
            for statement, loop_text, line in _leaving_statements_in(loop.body, site, epoch_names, "job.epochs()"):
                yield "DT601", line, (("what", statement), ("loop", loop_text))


def is_epoch_loop_at(loop: ast.For, line: int) -> bool:
    is_on_line = loop.iter.lineno <= line <= (loop.iter.end_lineno or loop.iter.lineno)
    return is_on_line and any(isinstance(node, ast.Attribute) and node.attr == "epochs" for node in ast.walk(loop.iter))


def _leaving_statements_in(
    body: Sequence[ast.AST], site: Site, epoch_names: set[str], loop_text: str, is_shared_loop: bool = True
) -> Iterator[tuple[str, str, int]]:
    """Yield each `break` or `return` that leaves a loop run by all workers, with the loop's text and the statement's
    line.

    `is_shared_loop`: whether a `break` in `body` leaves a loop that all workers run.
    """
    for node in body:
        if isinstance(node, ast.Return):
            yield "return", "job.epochs()", node.lineno
        elif isinstance(node, ast.Break) and is_shared_loop:
            yield "break", loop_text, node.lineno
        elif isinstance(node, LOOPS):
            is_over_batches = isinstance(node, ast.For) and iterates_batches(node.iter, site, epoch_names)
            yield from _leaving_statements_in(node.body, site, epoch_names, "the batches of an epoch", is_over_batches)
            yield from _leaving_statements_in(node.orelse, site, epoch_names, loop_text, is_shared_loop)
        elif not isinstance(node, SCOPES):
            yield from _leaving_statements_in(
                [*ast.iter_child_nodes(node)], site, epoch_names, loop_text, is_shared_loop
            )


def variable_names_in(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def iterates_batches(expression: ast.expr, site: Site, epoch_names: set[str]) -> bool:
    """Whether an expression iterates over an epoch's batches, or over a loader of the job."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in ("batches", "enumerate", "indices"):
            if isinstance(node.value, ast.Name) and node.value.id in epoch_names:
                return True
        elif isinstance(node, ast.Name) and node.id in site.loader_names:
            return True
    return False
