"""Parse the source of the user's script, and run each analysis of the source once."""

from __future__ import annotations

import ast
import functools
import linecache
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import NamedTuple

from dyntrain.training.worker.data.loader import Loader

Advice = tuple[str, int, tuple[tuple[str, str | int], ...]]  # a rule's code, a line, and values for its sentence
MOST_CACHED_RESULTS = 256  # cached results of an analysis; the least recently used ones are dropped
PARSER_LOCK = threading.Lock()  # CPython 3.11 cannot make two trees at once: "AST constructor recursion depth mismatch"
LOOPS = (ast.For, ast.AsyncFor, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Site(NamedTuple):
    """Line of a script at which a loop over epochs is about to begin, with the script's path and source.

    `loader_names`: names of variables that hold a loader of the job.
    """

    file: str  # the script's path
    line: int  # where the loop begins
    source: str  # the file's text
    loader_names: frozenset[str]


class _NoSyntaxTree(Exception):
    pass


def once_per_site(analysis: Callable[[Site, ast.Module], Iterable[Advice]]) -> Callable[[FrameType], Sequence[Advice]]:
    """Return a function that runs `analysis` for the frame that begins a loop over epochs. The analysis runs once for
    each line of a source; its result is cached.

    A source that cannot be parsed gives no advice, and is parsed again at the next call.
    """

    @functools.lru_cache(MOST_CACHED_RESULTS)
    def cached_advice(site: Site) -> Sequence[Advice]:
        return tuple(analysis(site, _tree_of(site.source)))

    def advice_at(caller: FrameType) -> Sequence[Advice]:
        with PARSER_LOCK:
            try:
                return cached_advice(_site_of(caller))
            except _NoSyntaxTree:
                return ()

    return advice_at


def _tree_of(source: str) -> ast.Module:
    """Parse the source. Raises _NoSyntaxTree if the source cannot be parsed.

    Parsing may fail if the file has changed since Python loaded the script. Parsing also fails if an object that is
    deleted during the parsing prints a traceback, because printing a traceback makes Python parse another source.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, SystemError) as error:
        raise _NoSyntaxTree from error


def _site_of(caller: FrameType) -> Site:
    script_file = caller.f_code.co_filename
    local_variables = caller.f_locals
    all_variables = {**caller.f_globals, **local_variables}
    # not isinstance: an object's `__class__` may run the script's code
    loader_names = frozenset(name for name, value in all_variables.items() if issubclass(type(value), Loader))
    if caller.f_code.co_flags & CO_OPTIMIZED:
        local_variables.clear()  # a function's f_locals are copies, which would keep the values alive forever
    return Site(script_file, caller.f_lineno, "".join(linecache.getlines(script_file, caller.f_globals)), loader_names)


def path_to(tree: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes on the path from `tree` down to `node`, both included; yields nothing if `node` is
    not in `tree`.
    """
    if tree is node:
        yield node
        return
    for child in ast.iter_child_nodes(tree):
        if path_below := list(path_to(child, node)):
            yield tree
            yield from path_below
            return
