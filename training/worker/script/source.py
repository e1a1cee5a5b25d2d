"""The source of the script that calls, as a tree."""

from __future__ import annotations

import ast
import linecache
import threading
from collections.abc import Iterator
from types import FrameType

ONE = threading.Lock()  # CPython 3.11 may not make two trees at once: "AST constructor recursion depth mismatch"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def tree_of(caller: FrameType) -> ast.Module | None:
    """None: there is no source, or it is not of this file any more; or what is collected meanwhile has printed a
    traceback, for which Python makes another tree.
    """
    try:
        with ONE:
            return ast.parse("".join(linecache.getlines(caller.f_code.co_filename, caller.f_globals)))
    except (SyntaxError, ValueError, RecursionError, SystemError):
        return None


def way_to(tree: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """From the outermost one down to `node`, itself included; nothing where it is not below `tree`."""
    if tree is node:
        yield node
        return
    for part in ast.iter_child_nodes(tree):
        if below := list(way_to(part, node)):
            yield tree
            yield from below
            return
