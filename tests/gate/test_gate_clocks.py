"""A test may not depend on how long ago the run began: what is stamped when a file is collected is old by the time its
test runs, and red on slow machines alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"time", "time_ns", "monotonic", "now", "utcnow", "today"}


def stamped(source: str) -> list[int]:
    """The lines that ask a clock while the module is imported: at its level, in a decorator or a default, or in a
    function of the module that is called there.
    """
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    lines, followed = set(), set()

    def look(node: ast.AST) -> None:
        for part in imported(node):
            if not isinstance(part, ast.Call):
                continue
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name in CLOCKS and name not in functions:
                lines.add(part.lineno)
            elif isinstance(part.func, ast.Name) and name in functions and name not in followed:
                followed.add(name)
                for line in functions[name].body:
                    look(line)

    look(tree)
    return sorted(lines)


def imported(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when `node` does: all of it but the bodies of functions, and what only a program runs."""
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from imported(child)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\nAT = time.time()\n", [2]),
        ("class A:\n    at = dt.datetime.now(dt.UTC)\n", [2]),
        ("@parametrize([event(now())])\ndef test(): pass\n", [1]),
        ("def f(at=time.time()): pass\n", [1]),
        ("def f():\n    return time.time()\nAT = [f()]\n", [2]),
        ("def f():\n    return time.time()\n", []),
        ("AT = lambda: time.time()\n", []),
        ("def now(): return 7\nAT = now()\n", []),
        ("if __name__ == '__main__':\n    print(time.time())\n", []),
    ],
)
def test_a_clock_that_is_asked_while_a_file_is_imported_is_found(source: str, lines: list[int]) -> None:
    assert stamped(source) == lines


def test_no_test_has_a_time_of_the_run_s_beginning() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.parent.name != "benchmarks"]  # those measure
    places = {str(path.relative_to(TESTS)): stamped(path.read_text()) for path in files}
    assert {place: lines for place, lines in places.items() if lines} == {}
