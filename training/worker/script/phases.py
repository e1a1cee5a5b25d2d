"""Whether a script runs another loop over epochs after this one; then its loops need names.

A job whose script has one loop ends with that loop. With several, it is unknown which one is the last until the script
ends, so the job ends with the script. If the source shows several loops without names, the script is told before it
trains.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from dyntrain.training.worker.script.source import LOOPS, SCOPES, Advice, Site, way_to

ONE_LOOP = (
    "job.epochs() a second time: the job was over with the first, which has no name, or job.close() has ended it. Give "
    "each loop a name: job.epochs(..., name='warm-up')"
)
WITHIN = "job.epochs() within the loop over another job.epochs(): one follows the other, once it has ended"


def unnamed(site: Site, tree: ast.Module) -> Iterator[Advice]:
    """Advise a name for the loop that begins at the site, if it is in a loop or its function has another loop of the
    same job.

    Jobs are compared by their names in the script.
    """
    calls = [node for node in ast.walk(tree) if _is_epochs(node)]
    own = next((each for each in calls if each.lineno <= site.line <= (each.end_lineno or each.lineno)), None)
    if own is None:
        return
    others = (each for each in calls if each is not own and ast.unparse(each.func) == ast.unparse(own.func))
    loops = (node for node in way_to(tree, own) if isinstance(node, LOOPS))
    again = any(own not in ast.walk(getattr(loop, "iter", ast.Pass())) for loop in loops)
    if again or any(_scope_of(tree, each) is _scope_of(tree, own) for each in others):
        yield "DT612", site.line, (("job", ast.unparse(own.func.value)),)  # type: ignore[attr-defined]


def _scope_of(tree: ast.Module, node: ast.AST) -> ast.AST:
    return [each for each in way_to(tree, node) if isinstance(each, (ast.Module, *SCOPES))][-1]


def _is_epochs(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "epochs"
