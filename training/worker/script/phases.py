"""Whether a script may go on to another loop over epochs after this one, as its source says.

A job whose script has one loop is over where the loop is. With several, nobody can know that the last one was the last
before the script ends, so the job ends with the script; what only may be a second loop counts as one. A script whose
source does not show it gives its loops names.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from dyntrain.training.worker.script.source import COMPREHENSIONS, LOOPS, SCOPES, Site, once_a_site, way_to

ONE_LOOP = (
    "job.epochs() a second time: the script's source does not show that it has several loops over epochs, so the job "
    "was over with the first, or job.close() has ended it. Give each a name: job.epochs(..., name='warm-up')"
)
WITHIN = "job.epochs() within the loop over another job.epochs(): one follows the other, once it has ended"


def _another_may_follow(site: Site, tree: ast.Module) -> bool:
    calls = [node for node in ast.walk(tree) if is_epochs(node)]
    return len(calls) > 1 or any(comes_again(tree, call, set()) for call in calls)


another_may_follow = once_a_site(_another_may_follow, without=False)  # of the frame that is about to begin a loop


def is_epochs(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "epochs"


def comes_again(tree: ast.AST, node: ast.AST, seen: set[str], elsewhere: bool = True) -> bool:
    """Whether `node` may be run more than once: in a loop, or in a function that is. `elsewhere`: of a function that
    is not called here nobody knows how often it is.
    """
    way = list(way_to(tree, node))
    for outer, inner in pairwise(way):
        if isinstance(outer, COMPREHENSIONS) and inner is not outer.generators[0]:
            return True
        if isinstance(outer, LOOPS) and inner not in (getattr(outer, "iter", None), *outer.orelse):
            return True
    functions = [outer for outer in way if isinstance(outer, SCOPES) and not isinstance(outer, ast.ClassDef)]
    if not functions:
        return False
    name = getattr(functions[-1], "name", "")
    if name in seen:
        return False
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and name == _called(each)]
    if len(uses) != 1:
        return bool(uses) or elsewhere
    return comes_again(tree, uses[0], {*seen, name}, elsewhere)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))
