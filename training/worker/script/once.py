"""What a script sets on its nets and datasets in one epoch alone, as a branch that is opened in epoch 30: a worker that
begins after that, or is restarted, has not got it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dyntrain.training.worker.script.parts import OF_THE_STATE, name_called


def set_once(loop: ast.For, epoch: set[str], job_has: set[str]) -> Iterator[tuple[int, str, str]]:
    """(line, condition, what is set) in the loop over epochs, whose number has one of the names `epoch`."""
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(_is_of_one(part, epoch) for part in ast.walk(node.test)):
            for target in _targets(node.body):
                if not _is_kept(target, job_has):
                    yield node.lineno, ast.unparse(node.test), ast.unparse(target)
                    break


def _is_of_one(test: ast.AST, epoch: set[str]) -> bool:
    """`epoch == 30`, `epoch + 1 == args.last`; not `epoch % 10 == 0`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    for side in (test.left, test.comparators[0]):
        shifted = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add | ast.Sub)
        number = side.left if shifted and isinstance(side, ast.BinOp) else side
        if isinstance(number, ast.Name) and number.id in epoch:
            return True
    return False


def _targets(body: list[ast.stmt]) -> Iterator[ast.Attribute | ast.Subscript]:
    for node in (each for statement in body for each in ast.walk(statement)):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node


def _is_kept(target: ast.Attribute | ast.Subscript, job_has: set[str]) -> bool:
    """By the job; or it is a variable of an object of the script's, of which more is known: see `variables`."""
    names = {node.attr for node in ast.walk(target) if isinstance(node, ast.Attribute)}
    below = {ast.unparse(node) for node in ast.walk(target) if isinstance(node, ast.expr)}
    writes = any(name_called(node) in ("data", "grad", "list_data") for node in ast.walk(target))  # weights
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return bool(names & OF_THE_STATE or below & job_has or writes or own)
