"""`break` and `return` that would take a script out of the loop over its epochs, found in its source before it trains.

A worker that leaves the loop is missed by the others, which are at the same batch; and a joiner would not know that the
job is over. What the source does not show (a loop over an iterator that was made elsewhere) is found when it happens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType

from dyntrain.training.worker.script.source import LOOPS, SCOPES, Site, once_a_site

LEAVES = (
    "{file}, line {line}: `{what}` leaves the loop over {loop}, while the other workers wait for this one. To end the "
    "job after so many steps, job.epochs(..., steps=N); to end it by a decision, job.stop() and let the loop go on to "
    'the next boundary, which is at the epoch\'s end with changes="epoch"'
)


BESIDE_A_RANGE = (
    "{file}, line {line}: `zip` of the batches with a range ends where the range does, before the last batch is known "
    "to be done, and a step that is void comes again. enumerate(...) in its place, as in enumerate(tqdm(loader)), or "
    "epoch.enumerate(loader) where the number is computed by"
)
RANGES = {"range", "trange"}


def refuse_leaving(caller: FrameType) -> None:
    """`caller` is about to begin the loop. Raises ValueError."""
    if refusal := _refusal_of(caller):
        raise ValueError(refusal)


def _refusal(site: Site, tree: ast.Module) -> str:
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and begins(loop, site.line):
            epoch = names_in(loop.target)
            for what, over, line in _leaves(loop.body, site, epoch, "job.epochs()"):
                return LEAVES.format(file=site.file, line=line, what=what, loop=over)
            for each in [node for node in ast.walk(loop) if isinstance(node, ast.For)]:
                if is_of_batches(each.iter, site, epoch) and _is_beside_a_range(each.iter):
                    return BESIDE_A_RANGE.format(file=site.file, line=each.lineno)
    return ""


_refusal_of = once_a_site(_refusal, without="")


def begins(loop: ast.For, line: int) -> bool:
    within = loop.iter.lineno <= line <= (loop.iter.end_lineno or loop.iter.lineno)
    return within and any(isinstance(node, ast.Attribute) and node.attr == "epochs" for node in ast.walk(loop.iter))


def _leaves(
    body: Sequence[ast.AST], site: Site, epoch: set[str], over: str, own: bool = True
) -> Iterator[tuple[str, str, int]]:
    """(statement, loop that it leaves, line). `own`: whether a `break` here is of a loop that all go through."""
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
            for part in ast.iter_child_nodes(node):
                block = part.body if isinstance(part, ast.ExceptHandler | ast.match_case) else [part]
                yield from _leaves(block, site, epoch, over, own)


def _is_beside_a_range(iterated: ast.expr) -> bool:
    """In any wrapping, also of the range, as in `zip(tqdm(range(n)), loader)`."""
    calls = [node for node in ast.walk(iterated) if isinstance(node, ast.Call)]
    zips = [call for call in calls if getattr(call.func, "id", "") == "zip"]
    return any(
        isinstance(node, ast.Call) and getattr(node.func, "id", "") in RANGES
        for call in zips
        for part in call.args
        for node in ast.walk(part)
    )


def names_in(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def is_of_batches(expression: ast.expr, site: Site, epoch: set[str]) -> bool:
    """epoch.batches(...) in any wrapping, or a loader of the job."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in ("batches", "enumerate", "indices"):
            if isinstance(node.value, ast.Name) and node.value.id in epoch:
                return True
        elif isinstance(node, ast.Name) and node.id in site.loaders:
            return True
    return False
