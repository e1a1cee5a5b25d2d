"""Find scripts with several loops over epochs, which must give each loop a name.

The end of a loop over epochs without a name ends the job. If its loops have names, a job ends when the script ends,
because another loop may follow each loop. If the source shows several loops without names, a warning is given before
the training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from dyntrain.training.worker.script.source import LOOPS, SCOPES, Advice, Site, path_to

ONE_LOOP_ERROR = (
    "job.epochs() was called again, but the job ended with its first loop, which has no name, or by job.close(). Give "
    "each loop a name: job.epochs(..., name='warm-up')"
)
WITHIN_LOOP_ERROR = (
    "job.epochs() was called inside another loop over job.epochs(): begin a loop after the other loop has ended"
)


def unnamed_loops(site: Site, tree: ast.Module) -> Iterator[Advice]:
    """Advise a name for the loop over epochs at `site` if another loop over epochs may follow.

    Another loop may follow if the loop is inside any Python loop, or if its function has another loop of the same job.
    Two loops are assumed to be of the same job if their job variables have the same name.
    """
    calls = [node for node in ast.walk(tree) if _is_call_of_epochs(node)]
    own_call = next((call for call in calls if call.lineno <= site.line <= (call.end_lineno or call.lineno)), None)
    if own_call is None:
        return
    other_calls = (
        call for call in calls if call is not own_call and ast.unparse(call.func) == ast.unparse(own_call.func)
    )
    loops = (node for node in path_to(tree, own_call) if isinstance(node, LOOPS))
    is_inside_loop = any(own_call not in ast.walk(getattr(loop, "iter", ast.Pass())) for loop in loops)
    if is_inside_loop or any(_scope_of(tree, call) is _scope_of(tree, own_call) for call in other_calls):
        yield "DT612", site.line, (("job", ast.unparse(own_call.func.value)),)  # type: ignore[attr-defined]


def _scope_of(tree: ast.Module, node: ast.AST) -> ast.AST:
    return [ancestor for ancestor in path_to(tree, node) if isinstance(ancestor, (ast.Module, *SCOPES))][-1]


def _is_call_of_epochs(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "epochs"
