"""Variables of a script that a worker that joins has otherwise, as the source shows them: told of in the log.

What goes from epoch to epoch, or from batch to batch, in one (`best`, `patience`, a counter) begins there with its
value above the loop, and `enumerate` over batches begins at 0. Neither matters where it is only printed.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Literal, NamedTuple, TypeGuard

from dyntrain.training.worker.script.left_early import begins, is_of_batches, names_in
from dyntrain.training.worker.script.source import COMPREHENSIONS, SCOPES, tree_of

CARRIED = (
    "%s, line %d: what goes from one pass to the next in variables of the script (%s) is on a worker that joins what "
    "it is above the loop, and a step that is void counts twice. What anything is decided or computed by belongs in "
    "the job's memory: memory = job.memory(%s)"
)
NUMBERED = (
    "%s, line %d: the number %s of enumerate(...) begins at 0 on a worker that joins in the middle of an epoch, and "
    "counts a step that is void twice: epoch.enumerate(...) gives the batch's own"
)
SHOWS = {  # or waits
    "print", "write", "log", "debug", "info", "warning", "warn", "error", "add_scalar", "add_scalars", "add_histogram",
    "add_image", "set_description", "set_postfix", "wait_to_read",
}  # fmt: skip
ACTS = {
    "step", "update", "allreduce_grads", "backward", "zero_grad", "set_learning_rate", "set_data", "setattr", "stop",
    "save", "save_parameters", "save_states", "export",
}  # fmt: skip
CHANGES = {"append", "appendleft", "pop", "popleft"}  # a list
CLOCKS = {"time", "perf_counter", "monotonic", "now"}
HOLDERS = {  # of several values by their names: who makes one has it
    "parse_args", "parse_known_args", "Namespace", "SimpleNamespace", "dict", "EasyDict", "AttrDict",
}  # fmt: skip
OF_THE_JOB = {"keep", "memory", "rows"}
log = logging.getLogger(__name__)


How = Literal["sets", "uses", "shows", "adds"]


class Use(NamedTuple):
    """`shows`: its value goes into a log alone, as far as that shows; `adds`: it is added to, which does both.
    `beyond`: in a function that is called, and outlives the call.
    """

    name: str
    how: How
    beyond: bool = False


def tell_of_variables(caller: FrameType) -> None:
    """`caller` is about to begin a loop over epochs."""
    file, tree = caller.f_code.co_filename, tree_of(caller)
    reads = Reads(tree) if tree else None
    for loop in ast.walk(tree) if tree else ():
        if reads and isinstance(loop, ast.For) and begins(loop, caller.f_lineno):
            batches = [each for each in ast.walk(loop) if _is_of_batches(each, caller, names_in(loop.target))]
            if found := list(dict.fromkeys(name for each in (loop, *batches) for name in reads.carried(each))):
                said = ", ".join(f"{re.split('[.[]', name.rstrip(']'))[-1]}=..." for name in found)
                log.warning(CARRIED, file, loop.lineno, ", ".join(found), said)
            for each in batches:
                if number := reads.number_used(each):
                    log.warning(NUMBERED, file, each.lineno, number)


def _is_of_batches(node: ast.AST, caller: FrameType, epoch: set[str]) -> TypeGuard[ast.For]:
    return isinstance(node, ast.For) and is_of_batches(node.iter, caller, epoch)


class Reads:
    """A script's lines in the order in which they are run, and those of functions of the same file that they call: of
    these, what is global, or an attribute of `self`.
    """

    def __init__(self, tree: ast.AST) -> None:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self._functions = {each.name: each for each in functions}
        self._within: list[str] = []
        set_to = list(_assignments(tree))
        holders = [names_in(to) for to, value in set_to if isinstance(value, ast.Dict) or _called(value) in HOLDERS]
        self._holders = {"self"}.union(*holders)
        self._job_has = set[str]().union(*(names_in(to) for to, value in set_to if _called(value) in OF_THE_JOB))
        self._job_has |= {name for call in _calls(tree) if _called(call) == "keep" for name in names_in(call)}

    def carried(self, loop: ast.For) -> list[str]:
        """What the loop's body sets after it has used it, in one pass, and does not only show."""
        uses = list(self._in_order([loop.target, *loop.body]))
        first = dict[str, How]()
        for use in uses:
            first.setdefault(use.name, use.how)
        used = {use.name for use in uses if use.how == "uses"}
        changed = {use.name for use in uses if use.how in ("sets", "adds")} - self._clocks(loop)
        return [name for name in first if name in used & changed and first[name] != "sets"]

    def number_used(self, loop: ast.For) -> str | None:
        """The name of `enumerate`'s number, where the loop is over that in any wrapping, and does not only show it."""
        numbers = any(getattr(each.func, "id", "") == "enumerate" for each in _calls(loop.iter))
        if numbers and isinstance(loop.target, ast.Tuple):
            name = getattr(loop.target.elts[0], "id", None)
            if any(use.name == name and use.how == "uses" for use in self._in_order(loop.body)):
                return name
        return None

    def _in_order(self, nodes: Sequence[ast.AST | None], shows: bool = False) -> Iterator[Use]:
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                own = set() if isinstance(node, ast.NamedExpr) else {self._name_of(target) for target in targets}
                before = list(self._in_order([node.value], shows))
                yield from (use._replace(how="adds") if use.name in own else use for use in before)
                for target in targets:
                    array, place = self._part_of(target) or ("", target)
                    if array:
                        anew = isinstance(place, ast.Slice) and array not in {use.name for use in before}
                        yield Use(array, "sets" if anew else "adds")
                    yield from self._in_order([place], shows)
            elif isinstance(node, ast.AugAssign):
                yield from self._in_order([node.value], shows)
                if changed := self._name_of(node.target) or (self._part_of(node.target) or ("",))[0]:
                    yield Use(changed, "adds")
            elif isinstance(node, ast.For):
                yield from self._in_order([node.iter, node.target, *node.body, *node.orelse], shows)
            elif isinstance(node, ast.If):
                yield from self._in_order([node.test], shows or _only_shows(node))
                yield from self._in_order([*node.body, *node.orelse], shows)
            elif isinstance(node, ast.Call):
                yield from self._call(node, shows)
            elif isinstance(node, COMPREHENSIONS):
                below = list(self._in_order(list(ast.iter_child_nodes(node)), shows))
                own = {use.name for use in below if use.how == "sets"}
                yield from (use for use in below if use.name not in own)
            elif isinstance(node, ast.expr) and (name := self._name_of(node)):
                how: How = "shows" if shows else "uses"
                yield Use(name, how if isinstance(getattr(node, "ctx", None), ast.Load) else "sets")
            elif node is not None and not isinstance(node, SCOPES):
                yield from self._in_order(list(ast.iter_child_nodes(node)), shows)

    def _name_of(self, node: ast.expr) -> str | None:
        """Of a variable, or of a value in one that holds several by their names."""
        if isinstance(node, ast.Name):
            return node.id
        root = getattr(node, "value", None)
        if not isinstance(root, ast.Name) or root.id not in self._holders:
            return None
        if isinstance(node, ast.Attribute):
            return f"{root.id}.{node.attr}"
        key = getattr(getattr(node, "slice", None), "value", None)
        return f"{root.id}[{key}]" if isinstance(key, str) else None

    def _part_of(self, node: ast.expr) -> tuple[str, ast.expr] | None:
        """The name of an array or a list of the script's own, and where in it."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or self._name_of(node):
            return None
        return None if node.value.id in self._job_has else (node.value.id, node.slice)

    def _clocks(self, loop: ast.For) -> set[str]:
        """Names that are set to what a clock says."""
        told = [target for target, value in _assignments(loop) if _called(value) in CLOCKS]
        return {name for target in told if (name := self._name_of(target))}

    def _call(self, call: ast.Call, shows: bool) -> Iterator[Use]:
        called, owner = _called(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        shows = shows or called in SHOWS
        if called == "next" and owner is None and call.args and (name := self._name_of(call.args[0])):
            yield from (Use(name, "shows" if shows else "uses"), Use(name, "adds"))
            return
        if called in CHANGES and owner is not None and (name := self._name_of(owner)):
            yield from self._in_order(call.args, shows)
            if called.startswith("pop"):
                yield Use(name, "shows" if shows else "uses")
            yield Use(name, "adds")
            return
        yield from self._in_order([owner, *call.args, *call.keywords], shows)
        function = None if called in ACTS else self._functions.get(called)  # those are an optimizer's, or Gluon's
        if function is not None and called not in self._within:
            said = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
            self._within.append(called)
            for use in self._in_order(function.body, shows):
                if use.beyond or not use.name.isidentifier() or use.name in said:
                    yield use._replace(beyond=True)
            self._within.pop()


def _only_shows(branch: ast.If) -> bool:
    calls = {_called(node) for part in branch.body for node in ast.walk(part)}
    stores = [
        node for part in branch.body for node in ast.walk(part) if isinstance(node, ast.Attribute | ast.Subscript)
    ]
    return bool(calls & SHOWS) and not calls & ACTS and not any(isinstance(each.ctx, ast.Store) for each in stores)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _called(node: ast.AST) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", ""))) if isinstance(node, ast.Call) else ""


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each, also of several side by side."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
