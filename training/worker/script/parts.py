"""What parts of a script's source are: names that are called, what is set to what, and what only goes into a log."""

from __future__ import annotations

import ast
from collections.abc import Iterator

SHOWS = {  # or waits
    "print", "write", "log", "debug", "info", "warning", "warn", "error", "add_scalar", "add_scalars", "add_histogram",
    "add_image", "set_description", "set_postfix", "wait_to_read",
}  # fmt: skip
ACTS = {
    "step", "update", "allreduce_grads", "backward", "zero_grad", "set_learning_rate", "set_data", "setattr", "stop",
    "save", "save_parameters", "save_states", "export",
}  # fmt: skip
CHANGES = {"append", "appendleft", "pop", "popleft"}  # a list
HOLDERS = {  # of several values by their names: who makes one has it
    "parse_args", "parse_known_args", "Namespace", "SimpleNamespace", "dict", "EasyDict", "AttrDict",
}  # fmt: skip
OF_THE_JOB = {"keep", "memory", "rows"}
ANSWERS_ALIKE = {  # given the same
    "len", "isinstance", "hasattr", "getattr", "callable", "type", "int", "float", "str", "bool", "abs", "min", "max",
    "sum", "any", "all", "round", "divmod", "set", "list", "tuple", "range", "split", "strip", "lower", "upper",
    "startswith", "endswith", "get", "keys", "values", "items", "index", "count", "isnan", "isinf",
    "isfinite", "item", "asscalar", "casefold", "exists", "isfile", "isdir", "num_gpus",
}  # fmt: skip


GENERATORS = {"Random", "RandomState", "default_rng", "Generator"}
SEEDS = {"seed", "setstate", "set_state"}
OF_THE_STATE = {"_optimizer", "optimizer", "lr_mult", "wd_mult", "grad_req"}  # attributes that go with the job
BY_PYTHON = ("__getitem__", "__call__", "forward", "hybrid_forward")  # methods that are called without their names


def functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def name_self(tree: ast.AST) -> None:
    """In place: what a method calls its object."""
    for method in (each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body):
        if isinstance(method, ast.FunctionDef) and method.args.args:
            if any(getattr(mark, "id", "") in ("staticmethod", "classmethod") for mark in method.decorator_list):
                continue
            name = method.args.args[0].arg
            method.args.args[0].arg = "self"
            for node in ast.walk(method):
                if isinstance(node, ast.Name) and node.id == name:
                    node.id = "self"


def set_on(node: ast.AST) -> str | None:
    """The name of an object on which an attribute is set."""
    is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    return node.value.id if is_set else None  # type: ignore[attr-defined]


def is_empty(node: ast.expr | None) -> bool:
    """Nothing, or a list or a dictionary of nothing."""
    if isinstance(node, ast.Dict):
        return not node.keys
    return not node.elts if isinstance(node, ast.List) else isinstance(node, ast.Constant) and node.value is None


def asks(test: ast.expr) -> bool:
    """Something that may answer otherwise each time, or, as `job.writes`, on each worker."""
    writes = any(isinstance(node, ast.Attribute) and node.attr == "writes" for node in ast.walk(test))
    return writes or any(name_called(call) not in ANSWERS_ALIKE for call in calls(test))


def only_shows(branch: ast.If) -> bool:
    calls = {name_called(node) for part in branch.body for node in ast.walk(part)}
    stores = [
        node for part in branch.body for node in ast.walk(part) if isinstance(node, ast.Attribute | ast.Subscript)
    ]
    return bool(calls & SHOWS) and not calls & ACTS and not any(isinstance(each.ctx, ast.Store) for each in stores)


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def name_called(node: ast.AST) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", ""))) if isinstance(node, ast.Call) else ""


def assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each, also of several side by side."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
