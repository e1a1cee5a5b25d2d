"""What a script's lines do to its variables, in the order in which they are run, as its source shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from dyntrain.training.worker.script.conditions import Condition, Conditions
from dyntrain.training.worker.script.parts import (
    ACTS,
    BY_PYTHON,
    CHANGES,
    GENERATORS,
    HOLDERS,
    OF_THE_JOB,
    OF_THE_STATE,
    SEEDS,
    SHOWS,
    asks,
    assignments,
    calls,
    functions,
    is_empty,
    name_called,
    name_self,
    only_shows,
    set_on,
)
from dyntrain.training.worker.script.source import COMPREHENSIONS, SCOPES

How = Literal["sets", "empties", "uses", "shows", "adds"]
ANEW: tuple[How, ...] = ("sets", "empties")


class Use(NamedTuple):
    """`empties`: it is set to nothing whatever came before; `shows`: its value goes into a log alone, as far as that
    shows; `adds`: it is added to, which does both. `under`: where that is done; `beyond`: in a function that is called,
    and outlives the call; `by_place`: what it holds is changed.
    """

    name: str
    how: How
    under: Conditions = frozenset()
    beyond: bool = False
    by_place: bool = False


class At(NamedTuple):
    """A place in the script. `shows`: what is used there goes into a log alone."""

    shows: bool = False
    under: Conditions = frozenset()


ALWAYS = At()


class Uses:
    """Of functions of the same file that are called, too: what is global or of a function around it, an attribute of
    `self`, and what is passed and changed.
    """

    def __init__(self, tree: ast.AST) -> None:
        name_self(tree)
        self._functions = functions(tree)
        self._methods = {node.name: functions(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self._within: list[ast.FunctionDef] = []
        set_to = list(assignments(tree))
        self._classes = {
            ast.unparse(to): called for to, value in set_to if (called := name_called(value)) in self._methods
        }
        self.job_has = {ast.unparse(to) for to, value in set_to if name_called(value) in OF_THE_JOB}
        kept = [node for call in calls(tree) if name_called(call) == "keep" for node in ast.walk(call)]
        self.job_has |= {ast.unparse(node) for node in kept if isinstance(node, ast.Name | ast.Attribute)}
        several = [to for to, value in set_to if isinstance(value, ast.Dict) or name_called(value) in HOLDERS]
        self.objects = {name for node in ast.walk(tree) if (name := set_on(node))} - self.job_has
        self._holders = {"self", *self.objects, *({to.id for to in several if isinstance(to, ast.Name)} - self.job_has)}
        self.generators = {ast.unparse(to) for to, value in set_to if name_called(value) in GENERATORS}

    def in_order(self, nodes: Sequence[ast.AST | None], at: At = ALWAYS) -> Iterator[Use]:
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                own = set() if isinstance(node, ast.NamedExpr) else {self.name_of(target) for target in targets}
                before = list(self.in_order([node.value], at))
                yield from (use._replace(how="adds") if use.name in own else use for use in before)
                for target in targets:
                    if part := self._part_of(target):
                        anew = isinstance(part[1], ast.Slice) and part[0] not in {use.name for use in before}
                        yield Use(part[0], "sets" if anew else "adds", at.under, by_place=True)
                        yield from self.in_order([part[1]], at)
                    elif (name := self.name_of(target)) and is_empty(node.value):
                        yield Use(name, "empties", at.under)
                    else:
                        yield from self.in_order([target], at)
            elif isinstance(node, ast.AugAssign):
                yield from self.in_order([node.value], at)
                if changed := self.name_of(node.target):
                    yield Use(changed, "adds", at.under)
                elif part := self._part_of(node.target):
                    yield Use(part[0], "adds", at.under, by_place=True)
            elif isinstance(node, ast.For):
                yield from self.in_order([node.iter, node.target, *node.body, *node.orelse], at)
            elif isinstance(node, ast.If):
                yield from self.in_order([node.test], at._replace(shows=at.shows or only_shows(node)))
                for branch, holds in ((node.body, True), (node.orelse, False)):
                    yield from self.in_order(branch, at._replace(under=at.under | {self._condition(node.test, holds)}))
            elif isinstance(node, ast.Call):
                yield from self._call(node, at)
            elif isinstance(node, COMPREHENSIONS):
                below = list(self.in_order(list(ast.iter_child_nodes(node)), at))
                own = {use.name for use in below if use.how == "sets"}
                yield from (use for use in below if use.name not in own)
            elif isinstance(node, ast.expr) and (name := self.name_of(node)):
                how: How = "shows" if at.shows else "uses"
                yield Use(name, how if isinstance(getattr(node, "ctx", None), ast.Load) else "sets", at.under)
                yield from self._property(node, at)
            elif isinstance(node, ast.Attribute) and (read := list(self._property(node, at))):
                yield from read
            elif node is not None and not isinstance(node, SCOPES):
                yield from self.in_order(list(ast.iter_child_nodes(node)), at)

    def _condition(self, test: ast.expr, holds: bool) -> Condition:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._condition(test.operand, not holds)
        joined = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or)
        parts = frozenset(self._condition(value, holds) for value in getattr(test, "values", ()) if joined)
        named = (self.name_of(node) for node in ast.walk(test) if isinstance(node, ast.expr))
        names, where = frozenset(name for name in named if name), (test.lineno, test.col_offset)
        return Condition(ast.unparse(test), holds, names, asks(test), where, parts)

    def name_of(self, node: ast.expr) -> str | None:
        """Of a variable, or of a value in one that holds several by their names."""
        if isinstance(node, ast.Name):
            return node.id
        root = getattr(node, "value", None)
        if not isinstance(root, ast.Name) or root.id not in self._holders:
            return None
        if isinstance(node, ast.Attribute):
            return f"{root.id}.{node.attr}" if node.attr not in OF_THE_STATE else None
        key = getattr(getattr(node, "slice", None), "value", None)
        return f"{root.id}[{key}]" if isinstance(key, str) else None

    def _part_of(self, node: ast.expr) -> tuple[str, ast.expr] | None:
        """The name of an array, a list or a dictionary of the script's own, and where in it."""
        if not isinstance(node, ast.Subscript) or self.name_of(node):
            return None
        name = self.name_of(node.value)
        return None if name is None or name in self.job_has else (name, node.slice)

    def _call(self, call: ast.Call, at: At) -> Iterator[Use]:
        called, owner = name_called(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        at = at._replace(shows=at.shows or called in SHOWS)
        if called == "next" and owner is None and call.args and (name := self.name_of(call.args[0])):
            yield from (Use(name, "shows" if at.shows else "uses", at.under), Use(name, "adds", at.under))
            return
        if called in CHANGES and owner is not None and (name := self.name_of(owner)):
            yield from self.in_order(call.args, at)
            if called.startswith("pop"):
                yield Use(name, "shows" if at.shows else "uses", at.under)
            yield Use(name, "adds", at.under, by_place=True)
            return
        if owner is not None and ast.unparse(owner) in self.generators and (name := self.name_of(owner)):
            yield from self.in_order([*call.args, *call.keywords], at)
            if called not in SEEDS:
                yield Use(name, "shows" if at.shows else "uses", at.under)
            yield Use(name, "sets" if called in SEEDS else "adds", at.under, by_place=True)
            return
        function = self._function(call, called, owner)
        within = list(self._in_function(function, at)) if function is not None else []
        given = {} if function is None else self._given(call, function)
        does = {name: [use for use in within if use.name == parameter] for parameter, name in given.items()}
        for part in [owner, *call.args, *call.keywords]:
            found = list(self.in_order([part], at))
            for use in found:
                uses = does.get(use.name)
                if uses is not None and all(each.how == "shows" or each.by_place for each in uses):
                    use = use._replace(how="shows")  # the function does no more with it
                yield use
        yield from (use._replace(name=given[use.name]) for use in within if use.name in given and use.by_place)
        yield from _beyond(within, at)
        if owner is not None and called in (methods := self._methods_of(owner)):
            yield from (use for each in BY_PYTHON if each != called for use in self._by_python(methods.get(each), at))

    def _by_python(self, method: ast.FunctionDef | None, at: At) -> Iterator[Use]:
        """What it computes by, of what other methods of its object may change."""
        if method is not None and method not in self._within:
            yield from (use for use in _beyond(list(self._in_function(method, at)), at) if use.how == "uses")

    def _property(self, node: ast.expr, at: At) -> Iterator[Use]:
        """What one of an object of the file's reads."""
        method = self._methods_of(node.value).get(node.attr) if isinstance(node, ast.Attribute) else None
        marks = [getattr(each, "id", getattr(each, "attr", "")) for each in method.decorator_list] if method else []
        if method is not None and method not in self._within and any("property" in each for each in marks):
            yield from _beyond(list(self._in_function(method, at)), at)

    def _methods_of(self, owner: ast.expr) -> dict[str, ast.FunctionDef]:
        return self._methods.get(self._classes.get(ast.unparse(owner), ""), {})

    def _function(self, call: ast.Call, called: str, owner: ast.expr | None) -> ast.FunctionDef | None:
        """That of the file which is called, as an object's `__call__` is, and is not at work already."""
        found = self._methods_of(owner).get(called) if owner else None
        if found is None and called not in ACTS:  # those are an optimizer's, or Gluon's
            found = self._functions.get(called)
        if found is None:
            found = self._methods_of(call.func).get("__call__")
        return None if found in self._within else found

    def _in_function(self, function: ast.FunctionDef, at: At) -> Iterator[Use]:
        outer = (ast.Global, ast.Nonlocal)
        said = {name for node in ast.walk(function) if isinstance(node, outer) for name in node.names}
        self._within.append(function)
        for use in self.in_order(function.body, at):
            yield use._replace(beyond=use.beyond or use.name in said)
        self._within.pop()

    def _given(self, call: ast.Call, function: ast.FunctionDef) -> dict[str, str]:
        """The variables that are passed, by the function's names for them."""
        parameters = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
        if parameters[:1] == ["self"]:
            del parameters[0]
        passed = [*zip(parameters, call.args, strict=False), *((each.arg or "", each.value) for each in call.keywords)]
        return {to: value.id for to, value in passed if isinstance(value, ast.Name)}


def _beyond(within: Sequence[Use], at: At) -> Iterator[Use]:
    """What outlives the call, of what is done in a function."""
    for use in within:
        if use.beyond or not use.name.isidentifier():
            how: How = "sets" if use.how == "empties" and use.under != at.under else use.how
            yield use._replace(how=how, under=at.under, beyond=True)
