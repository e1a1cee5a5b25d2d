"""A variable that a loop over epochs sets and that is used after it, where another loop follows: who joins in the later
one does not go through the earlier, nor does any worker when the job goes on from a commit of the later one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dyntrain.training.worker.script.left_early import begins
from dyntrain.training.worker.script.phases import comes_again, is_epochs, of_one_job
from dyntrain.training.worker.script.source import COMPREHENSIONS, SCOPES, Advice, Site, way_to

At = tuple[int, int]  # in the source: line, column


def unset(site: Site, tree: ast.Module) -> Iterator[Advice]:
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and begins(loop, site.line) and followed(tree, loop):
            for name, line in unset_after(tree, loop):
                yield "DT603", line, (("name", name), ("loop", loop.lineno))


def followed(tree: ast.Module, loop: ast.For) -> bool:
    """Whether it comes again, or there is a loop over epochs that is not above it in the same scope."""
    own = scope_of(tree, loop)
    above = {id(node) for node in _nodes(own) if getattr(node, "lineno", 0) < loop.lineno}
    inside = {id(node) for node in ast.walk(loop.iter)}
    calls = [node for node in ast.walk(tree) if is_epochs(node)]
    ours = [call for call in calls if id(call) in inside]
    others = [call for call in calls if any(of_one_job(call, each) for each in ours)]
    return comes_again(tree, loop.iter, set()) or any(id(node) not in above | inside for node in others)


def unset_after(tree: ast.Module, loop: ast.For) -> Iterator[tuple[str, int]]:
    """(name, line) of each use after the loop of what the loop alone has set."""
    scope, last = scope_of(tree, loop), loop.body[-1]
    begin, end = _begin(loop), _end(last)
    nodes = list(_nodes(scope))
    elsewhere = {name for node in nodes for name in _said_elsewhere(node)}
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        elsewhere |= {each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg)}
    later = {number: at for node in nodes for number, at in _set_later(node)}
    sets = [(name, later.get(id(node), _begin(node))) for node in nodes for name in _sets(node)]
    elsewhere |= {name for name, at in sets if at < begin}
    within = {name for name, at in sets if begin <= at <= end} - elsewhere
    for name, at in sorted(((name, at) for node in nodes for name, at in _uses(node)), key=lambda use: use[1]):
        if name in within and at > end and not any(name == other and end < set_at <= at for other, set_at in sets):
            yield name, at[0]


def _begin(node: Any) -> At:
    return node.lineno, node.col_offset


def _end(node: Any) -> At:
    return node.end_lineno, node.end_col_offset


def _set_later(node: ast.AST) -> Iterator[tuple[int, At]]:
    """Names, by their ids, that get their values once what stands behind them is known: `x` in `x = f(x)`."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        at = _end(node.iter if isinstance(node, ast.For | ast.AsyncFor) else node)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from ((id(each), at) for target in targets for each in ast.walk(target))


def scope_of(tree: ast.Module, node: ast.AST) -> ast.AST:
    return [each for each in way_to(tree, node) if isinstance(each, (ast.Module, *SCOPES))][-1]


def _nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Below it, without what has names of its own, and without what only a worker does that has come here."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if isinstance(node, ast.If) and any(getattr(each, "attr", "") == "writes" for each in ast.walk(node.test)):
            yield from (part for below in node.orelse for part in [below, *_nodes(below)])
        elif not isinstance(node, SCOPES + COMPREHENSIONS):
            yield from _nodes(node)


def _sets(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (each.asname or each.name.split(".")[0] for each in node.names)


def _uses(node: ast.AST) -> Iterator[tuple[str, At]]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id, _begin(node)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, _begin(node)
    elif isinstance(node, COMPREHENSIONS):  # has names of its own, but for what it goes through first
        own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        yield from (
            (each.id, _begin(each))
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in own
        )


def _said_elsewhere(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, ast.Global | ast.Nonlocal) else []
