"""Names and messages in the field's terms: a bare participle does not say what a value is, a long message is not read.

Docstrings are held by ruff (D4, in pyproject.toml).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = [
    ".chalice",
    ".ci",
    "controller",
    "node_bootstrap",
    "training",
    "tests/*.py",
    "tests/bare",
    "tests/benchmarks",
    "tests/contracts",
    "tests/controller",
    "tests/dashboard",
    "tests/deploy",
    "tests/documents",
    "tests/e2e",
    "tests/gate",
    "tests/jobs",
    "tests/local",
    "tests/node_bootstrap",
    "tests/packaging",
    "tests/scenarios",
    "tests/training",
    "tests/witnesses",
]
UNCLEAR = {"found", "told", "said", "asked", "made"}
MOST_WORDS = 30
LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "echo"}


def files_of(room: str) -> list[Path]:
    """All modules of a folder, or those that a pattern names."""
    return sorted(ROOT.glob(room if room.endswith(".py") else f"{room}/**/*.py"))


def unclear(source: str) -> list[tuple[int, str]]:
    """(line, name) of each variable, parameter, attribute, function or class that is only a participle."""
    return sorted({(line, name) for line, name in bindings(ast.parse(source)) if name.lstrip("_").lower() in UNCLEAR})


def bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that the source gives; one that it merely uses is given elsewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name


def long_messages(source: str) -> list[tuple[int, int]]:
    """(line, words) of each message, raised, logged or printed, too long to be read; a placeholder is a word."""
    counted = [
        (argument.lineno, len(text(argument).split()))
        for node in ast.walk(ast.parse(source))
        for argument in message_arguments(node)
    ]
    return sorted((line, words) for line, words in counted if words > MOST_WORDS)


def message_arguments(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Raise(exc=ast.Call(args=arguments)):
            return arguments
        case ast.Call(func=ast.Attribute(attr=method), args=arguments) if method in LOGGING:
            return arguments
        case _:
            return []


def text(expression: ast.expr) -> str:
    match expression:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left) + text(right)
        case _:
            return "X"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1\nfor told, other in pairs: pass", [(1, "found"), (2, "told")]),
        ("def said(asked, *made): pass", [(1, "asked"), (1, "made"), (1, "said")]),
        ("class Told:\n    made: int = 0", [(1, "Told"), (2, "made")]),
        ("self._found = [told for told in all]", [(1, "_found"), (1, "told")]),
        ("from here import it as told", [(1, "told")]),
        ("if (found := look()): pass", [(1, "found")]),
        ("sort(key=lambda told: 1)\ntry: pass\nexcept OSError as said: pass", [(1, "told"), (3, "said")]),
        ("match value:\n    case [*found]: pass", [(2, "found")]),
        ("board.told(event)\n'found'\n{'asked': foundation}\nnot_found = asked_at = 1", []),
    ],
)
def test_a_bare_participle_is_noticed(source: str, names: list[tuple[int, str]]) -> None:
    assert unclear(source) == names


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (f"raise GiveUp({'word ' * 31!r})", [(1, 31)]),
        (f"raise GiveUp(f'{{name}} is {'word ' * 29}')", [(1, 31)]),
        (f"raise Refused('Code', 'a ' + {'word ' * 31!r}) from error", [(1, 32)]),
        (f"log.error({'word ' * 31!r}, name)\nclick.echo({'word ' * 31!r})", [(1, 31), (2, 31)]),
        (f"raise GiveUp({'word ' * 30!r})\nraise\nhelp({'word ' * 31!r})", []),
    ],
)
def test_a_long_message_is_noticed(source: str, lines: list[tuple[int, int]]) -> None:
    assert long_messages(source) == lines


@pytest.mark.parametrize("room", ROOMS)
def test_names_say_what_a_value_is(room: str) -> None:
    files = files_of(room)
    assert files
    names = [f"{file.relative_to(ROOT)}:{line}: {name}" for file in files for line, name in unclear(file.read_text())]
    names += [f"{file.relative_to(ROOT)}" for file in files if file.stem in UNCLEAR]
    assert not names, "\n".join(["take the field's noun or verb for:", *names])


@pytest.mark.parametrize("room", ROOMS)
def test_messages_are_short(room: str) -> None:
    lines = [
        f"{file.relative_to(ROOT)}:{line}: {words} words"
        for file in files_of(room)
        for line, words in long_messages(file.read_text())
    ]
    assert not lines, "\n".join([f"say in {MOST_WORDS} words what happened, where, and what to do:", *lines])
