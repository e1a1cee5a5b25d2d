"""No break is made where none can matter, and nothing else is spared: what is spared too much would make the tests look
better than they are.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

Apart = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "mutants" / "apart.py"))["Apart"]


def spared(source: str, text: str) -> bool:
    """Whether the one place of `text` is."""
    assert source.count(text) == 1
    line = source[: source.index(text)].count("\n") + 1
    start = source.splitlines()[line - 1].index(text)
    return Apart(source).holds(((line, start), (line, start + len(text))))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(a: int | None = 1) -> str: pass", "|"),
        ("def f(a: int = 1) -> str | None: pass", "|"),
        ("async def f(*a: int | None) -> str: pass", "|"),
        ("class A:\n    é: tuple[int | None, ...] = ()", "|"),
        ("if TYPE_CHECKING:\n    A = B + C\n", "TYPE_CHECKING"),
        ("if TYPE_CHECKING:\n    A = B + C\n", "+"),
        ("class A(Protocol):\n    @property\n    def a(self) -> int: ...\n", "@property"),
        ("class A(Protocol[T]):\n    def a(self, b: int = 7) -> int: ...\n", "7"),
        ("@overload\ndef f(a: int = 7) -> int: ...\n", "@overload"),
        ("@overload\ndef f(a: int = 7) -> int: ...\n", "7"),
        ("Name = A | B", "|"),
        ("log.info('took', extra={'ms': 1000 * seconds})", "1000"),
        ("logging.getLogger\nlogger.log(7, 'a' + b)", "7"),
        ("_log.warning(\n    'é', a +\n    b)", "+"),
    ],
)
def test_what_cannot_matter_is_spared(source: str, text: str) -> None:
    assert spared(source, text)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(a: int | None = 1) -> str: pass", "1"),
        ("class A:\n    a: Annotated[int | None, Field(ge=7)] = 8", "7"),
        ("class A:\n    a: Annotated[int | None, Field(ge=7)] = 8", "8"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    A = B + C\n", "+"),
        ("class A(Base):\n    def a(self, b: int = 7) -> int: ...\n", "7"),
        ("@property\ndef f(a: int = 7) -> int: ...\n", "@property"),
        ("FLAGS = A | B", "|"),
        ("def f():\n    Name = A | B", "|"),
        ("log.info('took')\na = 7", "7"),
        ("math.log(7)", "7"),
        ("log.append(7)", "7"),
        ("catalog.info(7)", "7"),
        ("if a > 7: log.info('é')", "7"),
    ],
)
def test_all_else_is_broken(source: str, text: str) -> None:
    assert not spared(source, text)
