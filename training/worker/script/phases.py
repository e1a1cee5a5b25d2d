"""Whether a script goes on to another loop over epochs after this one: its loops then have names.

A job whose script has one loop is over where the loop is. With several, nobody can know that the last one was the last
before the script ends, so the job ends with the script. Where the source shows several and they have no names, the
script is told before it trains.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeGuard

from dyntrain.training.worker.script.source import COMPREHENSIONS, LOOPS, SCOPES, Advice, Site, way_to

ONE_LOOP = (
    "job.epochs() a second time: the job was over with the first, which has no name, or job.close() has ended it. Give "
    "each loop a name: job.epochs(..., name='warm-up')"
)
WITHIN = "job.epochs() within the loop over another job.epochs(): one follows the other, once it has ended"


def unnamed(site: Site, tree: ast.Module) -> Iterator[Advice]:
    """Of the loop that begins at the site, where another one of the same job may follow."""
    calls = [call for call in ast.walk(tree) if is_epochs(call)]
    own = [call for call in calls if call.lineno <= site.line <= (call.end_lineno or call.lineno)]
    for call in own[:1]:
        others = [each for each in calls if each is not call and of_one_job(each, call)]
        both_run = _is_run(tree, call) and any(_is_run(tree, each) for each in others)
        if both_run or comes_again(tree, call, set()):
            yield "DT612", site.line, (("job", ast.unparse(call.func.value)),)  # type: ignore[attr-defined]


def _is_run(tree: ast.Module, node: ast.AST) -> bool:
    """Whether a function that it is in, if it is in one, is called in this file."""
    return not (name := _function_of(list(way_to(tree, node)))) or bool(_uses(tree, name))


def is_epochs(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "epochs"


def of_one_job(one: ast.Call, other: ast.Call) -> bool:
    """By the name that the script has for it: an `epochs()` of something else is none of ours."""
    return ast.unparse(one.func) == ast.unparse(other.func)


def comes_again(tree: ast.AST, node: ast.AST, seen: set[str]) -> bool:
    """Whether `node` is run more than once: in a loop, or in a function that is, as far as this file calls it."""
    way = list(way_to(tree, node))
    for outer, inner in pairwise(way):
        if isinstance(outer, COMPREHENSIONS) and inner is not outer.generators[0]:
            return True
        if isinstance(outer, LOOPS) and inner not in (getattr(outer, "iter", None), *outer.orelse):
            return True
    name = _function_of(way)
    uses = _uses(tree, name) if name and name not in seen else []
    return len(uses) > 1 or any(comes_again(tree, each, {*seen, name}) for each in uses)


def _function_of(way: list[ast.AST]) -> str:
    """The innermost one."""
    functions = [outer for outer in way if isinstance(outer, SCOPES) and not isinstance(outer, ast.ClassDef)]
    return str(getattr(functions[-1], "name", "")) if functions else ""


def _uses(tree: ast.AST, name: str) -> list[ast.Call]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.Call) and name == _called(each)]


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))
