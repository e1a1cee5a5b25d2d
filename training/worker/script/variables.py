"""Variables of a script that a worker that joins has otherwise, as the source shows them: told of in the log.

What goes from epoch to epoch, or from batch to batch, in one (`best`, `patience`, a counter) begins there with its
value above the loop, and `enumerate` over batches begins at 0. Neither matters where it is only printed.
"""

from __future__ import annotations

import ast
import logging
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
SHOWS = {"print", "write", "log", "debug", "info", "warning", "add_scalar", "set_description", "set_postfix"}
ACTS = {
    "step", "update", "allreduce_grads", "backward", "zero_grad", "set_learning_rate", "set_data", "setattr", "stop",
    "save", "save_parameters", "save_states", "export",
}  # fmt: skip
CHANGES = {"append", "appendleft", "pop", "popleft"}  # a list
CLOCKS = {"time", "perf_counter", "monotonic", "now"}
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
                said = ", ".join(f"{name.removeprefix('self.')}=..." for name in found)
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

    def carried(self, loop: ast.For) -> list[str]:
        """What the loop's body sets after it has used it, in one pass, and does not only show."""
        uses = list(self._in_order([loop.target, *loop.body]))
        first = dict[str, How]()
        for use in uses:
            first.setdefault(use.name, use.how)
        used = {use.name for use in uses if use.how == "uses"}
        changed = {use.name for use in uses if use.how in ("sets", "adds")} - _clocks(loop)
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
                own = set() if isinstance(node, ast.NamedExpr) else {_name_of(target) for target in targets}
                for use in self._in_order([node.value], shows):
                    yield use._replace(how="adds") if use.name in own else use
                yield from self._in_order(targets, shows)
            elif isinstance(node, ast.AugAssign):
                yield from self._in_order([node.value], shows)
                if name := _name_of(node.target):
                    yield Use(name, "adds")
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
            elif isinstance(node, ast.expr) and (name := _name_of(node)):
                how: How = "shows" if shows else "uses"
                yield Use(name, how if isinstance(getattr(node, "ctx", None), ast.Load) else "sets")
            elif node is not None and not isinstance(node, SCOPES):
                yield from self._in_order(list(ast.iter_child_nodes(node)), shows)

    def _call(self, call: ast.Call, shows: bool) -> Iterator[Use]:
        called, owner = _called(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        shows = shows or called in SHOWS
        if called in CHANGES and owner is not None and (name := _name_of(owner)):
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
                if use.beyond or use.name.startswith("self.") or use.name in said:
                    yield use._replace(beyond=True)
            self._within.pop()


def _name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


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


def _clocks(loop: ast.For) -> set[str]:
    """Names that are set to what a clock says."""
    return {
        name
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and _called(node.value) in CLOCKS
        for target in node.targets
        if (name := _name_of(target))
    }
