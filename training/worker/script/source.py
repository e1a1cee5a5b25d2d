"""The source of the script that calls, as a tree."""

from __future__ import annotations

import ast
import linecache
import threading
from types import FrameType

ONE = threading.Lock()  # CPython 3.11 may not make two trees at once: "AST constructor recursion depth mismatch"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def tree_of(caller: FrameType) -> ast.Module | None:
    """None: there is no source, or it is not of this file any more."""
    try:
        with ONE:
            return ast.parse("".join(linecache.getlines(caller.f_code.co_filename, caller.f_globals)))
    except (SyntaxError, ValueError, RecursionError):
        return None
