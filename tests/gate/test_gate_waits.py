"""Every bound of a test goes by the pace of the machine: a plain number of seconds is too few on one that is busy.

Not looked at are model clocks (`world.wait(60)` moves a time that is the test's own), options of the product that are
called otherwise, and tests that give the product a short time on purpose, to see it pass.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WAITS = {"join", "result", "communicate"}  # whose first argument is a bound in seconds
OF_ASYNCIO = {"timeout": 0, "wait_for": 1, "wait": 1}
MEANT = {
    (
        "training/test_training_handover.py",
        "result",
    ): "nothing may come yet: it waits in vain until the test lets it go",
    ("training/test_script_loader.py", "loader"): "the product's own bound, which is to pass",
    ("node_bootstrap/test_node_channel_laws.py", "wait"): "a second of the test's own clock, which nobody waits for",
}


def impatient(source: str) -> list[tuple[int, str]]:
    """(line, what is called) of bounds that are plain numbers, and of loops that ask the clock themselves."""
    calls = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            place = OF_ASYNCIO.get(name) if of == "asyncio" else 0 if name in WAITS else None
            bounds = [word.value for word in node.keywords if word.arg == "timeout"]
            bounds += node.args[place : place + 1] if place is not None else []
            if any(is_plain(bound) for bound in bounds):
                calls.append((node.lineno, name))
        elif isinstance(node, ast.While) and "monotonic()" in ast.unparse(node.test):
            calls.append((node.lineno, "while"))
    return sorted(calls)


def is_plain(bound: ast.expr) -> bool:
    return isinstance(bound, ast.Constant) and isinstance(bound.value, int | float) and bound.value > 0


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("subprocess.run(command, timeout=60)", [(1, "run")]),
        ("thread.join(10)\nfuture.result(5)", [(1, "join"), (2, "result")]),
        ("await asyncio.wait_for(first, 60)", [(1, "wait_for")]),
        ("async with asyncio.timeout(5): pass", [(1, "timeout")]),
        ("while time.monotonic() < began + 10: pass", [(1, "while")]),
        ("thread.join(patient(10))\nbed.wait_for(look, 60, 'what')\nworld.wait(60)\n', '.join(words)", []),
        ("queue.get(timeout=0)\nthread.join()", []),
    ],
)
def test_what_is_impatient_is_found(source: str, calls: list[tuple[int, str]]) -> None:
    assert impatient(source) == calls


def test_every_bound_of_a_test_goes_by_the_pace_of_the_machine() -> None:
    calls = [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.parent.name != "benchmarks"
        for line, name in impatient(path.read_text(encoding="utf-8"))
        if (str(path.relative_to(TESTS)), name) not in MEANT
    ]
    assert not calls, "give these patient(seconds), or wait with waiting.py"
