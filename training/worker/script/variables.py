"""Advise on a script's variables that have other values on a worker that joins than on the other workers.

A variable may carry a value from epoch to epoch or batch to batch (`best`, `patience`, a counter). On a worker that
joins, a carried variable has its value from before the loop, and `enumerate` over batches begins at 0. No advice is
given for variables whose values are only printed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from dyntrain.training.worker.script.left_early import is_epoch_loop_at, iterates_batches, variable_names_in
from dyntrain.training.worker.script.source import COMPREHENSIONS, SCOPES, Advice, Site

SHOWING_CALLS = {  # calls that only show their arguments, or wait
    "print", "write", "log", "debug", "info", "warning", "warn", "error", "add_scalar", "add_scalars", "add_histogram",
    "add_image", "set_description", "set_postfix", "wait_to_read",
}  # fmt: skip
CHANGING_METHODS = {"append", "appendleft", "pop", "popleft", "extend", "clear"}  # methods that change a container
CLOCKS = {"time", "perf_counter", "monotonic", "now"}  # functions that read a clock
READING_METHODS = {"get", "get_name_value"}  # methods that read a metric
JOB_METHODS = {"keep", "memory", "rows"}  # methods of a job that keep values for joining workers


def variable_advice(site: Site, tree: ast.Module) -> Iterator[Advice]:
    kept_names = _names_kept_by_job(tree)
    for loop in [node for node in ast.walk(tree) if isinstance(node, ast.For) and is_epoch_loop_at(node, site.line)]:
        epoch_names, inner_loops = (
            variable_names_in(loop.target),
            [node for node in ast.walk(loop) if isinstance(node, ast.For)],
        )
        loops = [
            loop,
            *(inner_loop for inner_loop in inner_loops if iterates_batches(inner_loop.iter, site, epoch_names)),
        ]
        passes = [_pass_of(any_loop) for any_loop in loops]
        carried_names = [
            name
            for any_pass in passes
            for name in any_pass.carried_names
            if name not in kept_names or name in any_pass.renamed
        ]
        if distinct_names := list(dict.fromkeys(carried_names)):
            memory_arguments = ", ".join(f"{name.split('.')[-1]}=..." for name in distinct_names)
            yield "DT604", loop.lineno, (("names", ", ".join(distinct_names)), ("memory", memory_arguments))
        for any_loop in loops:
            if "zip" in _plain_calls(any_loop.iter):
                yield "DT607", any_loop.lineno, ()
            number_variable = any_loop.target.elts[0] if isinstance(any_loop.target, ast.Tuple) else None
            is_numbered = "enumerate" in _plain_calls(any_loop.iter)
            if is_numbered and isinstance(number_variable, ast.Name) and number_variable.id in _pass_of(any_loop).used:
                yield "DT605", any_loop.lineno, (("name", number_variable.id),)


class _LoopPass(ast.NodeVisitor):
    """Names that one pass (iteration) of a loop reads and sets, in the order of the loop's statements.

    Names of variables and of attributes of `self` are collected. Inner loops are assumed to run at least once.
    """

    def __init__(self) -> None:
        self.first: dict[str, None] = {}  # names that are read or changed before they are set
        self.changed, self.used = set[str](), set[str]()  # `used`: neither only shown nor only changed
        self.renamed = set[str]()  # assigned another value
        self._set_names, self._clocks, self._shows = set[str](), set[str](), False

    @property
    def carried_names(self) -> list[str]:
        """Names of variables whose value from one pass (iteration) of the loop is used in the next pass."""
        return [name for name in self.first if name in (self.changed & self.used) - self._clocks]

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _record_read(self, name: str, changes: bool = False) -> None:
        if name not in self._set_names:
            self.first.setdefault(name)
        if changes:
            self.changed.add(name)
        elif not self._shows:
            self.used.add(name)

    # named as `ast.NodeVisitor` calls them

    def visit_Name(self, node: ast.Name | ast.Attribute) -> None:
        name = ast.unparse(node)
        if isinstance(node.ctx, ast.Load):
            self._record_read(name)
        else:
            self.changed.add(name)
            self.renamed.add(name)
            self._set_names.add(name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            self.visit_Name(node)
        else:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._record_assignment(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._record_assignment([node.target], node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._record_assignment([node.target], node.value)
        self._record_read(node.target.id)

    def _record_assignment(self, targets: Sequence[ast.expr], value: ast.expr | None) -> None:
        target_names = {ast.unparse(target) for target in targets}
        value_pass = _LoopPass()
        value_pass.visit_all([value])
        self_updated_names = (target_names & set(value_pass.first)) - self.used  # total = total + loss
        for name in self_updated_names:
            self._record_read(name, changes=True)
        self.visit_all([value])
        self.used -= self_updated_names
        if _called_name(value) in CLOCKS or (value_pass.first and set(value_pass.first) <= self._clocks):
            self._clocks |= target_names
        for target in targets:
            self._record_write(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        self._record_read(ast.unparse(target), changes=True)

    def _record_write(self, target: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self._record_read(ast.unparse(target.value), changes=True)
            self.visit(target.slice)
        else:
            self.visit(target)

    def visit_If(self, node: ast.If) -> None:
        was_showing, self._shows = self._shows, self._shows or all(map(_only_shows, node.body))
        self.visit(node.test)
        self._shows = was_showing
        names_before_if = set(self._set_names)
        self.visit_all(node.body)
        body_names, self._set_names = self._set_names, names_before_if
        self.visit_all(node.orelse)
        self._set_names &= body_names

    def visit_For(self, node: ast.For) -> None:
        self.visit_all([node.iter, node.target, *node.body, *node.orelse])

    def visit_Call(self, node: ast.Call) -> None:
        was_showing, function_name = self._shows, _called_name(node)
        self._shows = was_showing or function_name in SHOWING_CALLS
        if function_name in CHANGING_METHODS and isinstance(node.func, ast.Attribute):
            self._record_read(ast.unparse(node.func.value), changes=True)
        else:
            self.visit(node.func)
        self.visit_all([*node.args, *node.keywords])
        self._shows = was_showing

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, SCOPES):
            return
        if isinstance(node, COMPREHENSIONS):
            bound_names = {
                name.id
                for generator in node.generators
                for name in ast.walk(generator.target)
                if isinstance(name, ast.Name)
            }
            outer_names = (name for name in ast.walk(node) if isinstance(name, ast.Name) and name.id not in bound_names)
            self.visit_all(outer_names)
            return
        super().generic_visit(node)


def _pass_of(loop: ast.For) -> _LoopPass:
    loop_pass = _LoopPass()
    loop_pass.visit_all([loop.target, *loop.body])
    return loop_pass


def _names_kept_by_job(tree: ast.Module) -> set[str]:
    """Return the names of variables that job.memory, job.keep or job.rows returned, or that were passed to job.keep."""
    kept_names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _called_name(node.value) in JOB_METHODS:
            kept_names |= {ast.unparse(part) for target in node.targets for part in ast.walk(target)}
        elif isinstance(node, ast.Call) and _called_name(node) == "keep":
            kept_names |= {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)}
    return kept_names


def _only_shows(node: ast.stmt) -> bool:
    """Whether the statement only prints or logs values, or only reads a metric or a clock."""
    if isinstance(node, ast.Assign):
        return _called_name(node.value) in READING_METHODS | CLOCKS
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and _called_name(node.value) in SHOWING_CALLS)


def _plain_calls(node: ast.AST) -> set[str]:
    """Return the names of functions that an expression calls by a plain name, as in `zip(...)` but not `a.zip(...)`."""
    return {str(getattr(call.func, "id", "")) for call in ast.walk(node) if isinstance(call, ast.Call)}


def _called_name(node: ast.AST | None) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", ""))) if isinstance(node, ast.Call) else ""
