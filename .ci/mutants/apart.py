"""Places of a source where a break cannot matter, so that none is made there.

- annotations, except calls in them (`Annotated[int, Field(ge=1)]`)
- code for types alone: below `if TYPE_CHECKING`, bodies of protocols, overloads, aliases of unions
- arguments of a logger

No operator changes docstrings. There are no other exclusions: breaks that survive without making a difference (an
equivalent break, a number of seconds) are for people to judge.
"""

from __future__ import annotations

import ast
import re

LOGGERS = re.compile(r"_?log(ger|ging)?$", re.IGNORECASE)
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
Spot = tuple[int, int]  # line from 1, character from 0
Span = tuple[Spot, Spot]


class Apart:
    """The excluded places of a source."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._apart: list[Span] = []
        self._called: list[Span] = []
        module = ast.parse(source)
        for node in ast.walk(module):
            self._look(node)
        for line in module.body:
            match line:
                case ast.Assign(targets=[ast.Name(name)], value=ast.BinOp(op=ast.BitOr())) if not name.isupper():
                    self._apart.append(self._span(line))

    def holds(self, span: Span) -> bool:
        """Whether a span is excluded."""
        return _within(span, self._apart) and not _within(span, self._called)

    def _look(self, node: ast.AST) -> None:
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") as test, body=[*_, last]):
                self._apart.append((self._span(test)[0], self._span(last)[1]))
            case ast.ClassDef(bases=bases) if any("Protocol" in ast.unparse(base) for base in bases):
                self._apart.append(((node.lineno + 1, 0), self._span(node)[1]))
            case ast.FunctionDef(decorator_list=[ast.Name("overload") as first, *_]):
                self._apart.append(((first.lineno, 0), self._span(node)[1]))
            case ast.Call(func=ast.Attribute(value=ast.Name(name), attr=level)):
                self._apart += [self._span(node)] if LOGGERS.match(name) and level in LEVELS else []
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if note is not None:
                self._apart.append(self._span(note))
                self._called += [self._span(part) for part in ast.walk(note) if isinstance(part, ast.Call)]

    def _span(self, node: ast.expr | ast.stmt) -> Span:
        """Position in characters, where ast counts bytes."""
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: PT018, as parse gives them
        first, last = self._lines[node.lineno - 1].encode(), self._lines[node.end_lineno - 1].encode()
        start = (node.lineno, len(first[: node.col_offset].decode()))
        return start, (node.end_lineno, len(last[: node.end_col_offset].decode()))


def _within(span: Span, spans: list[Span]) -> bool:
    return any(start <= span[0] and span[1] <= end for start, end in spans)
