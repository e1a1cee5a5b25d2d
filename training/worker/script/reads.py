"""Which variables a loop of a script's uses as the pass before has left them, and which of them lines after it use."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dyntrain.training.worker.script.conditions import Assigned, Condition
from dyntrain.training.worker.script.parts import SHOWS, assignments, calls, name_called
from dyntrain.training.worker.script.source import way_to
from dyntrain.training.worker.script.unset import followed, scope_of
from dyntrain.training.worker.script.uses import ANEW, Use, Uses

WRITES = (*ANEW, "adds")
CLOCKS = {"time", "perf_counter", "monotonic", "now"}


class Reads:
    """Of a script."""

    def __init__(self, tree: ast.AST) -> None:
        self._uses = Uses(tree)
        self.job_has, self.generators = self._uses.job_has, self._uses.generators

    def carried(self, loop: ast.For) -> list[str]:
        """What the loop's body uses as the pass before has left it, and does not only show."""
        uses = list(self._uses.in_order([loop.target, *loop.body]))
        last = {use.name: use for use in uses if use.how in WRITES}
        kept = {name for name, use in last.items() if use.how != "empties" or use.under} - self._clocks(loop)
        decides = {use.name for use in uses if use.how == "uses"}
        decides |= {name for name in kept if name.partition(".")[0] in self._used_whole(loop)}
        return [name for name in dict.fromkeys(_of_the_pass_before(uses)) if name in decides & kept]

    def used_later(self, tree: ast.Module, loop: ast.For) -> list[str]:
        """What the loop's body changes and lines after it use, where another loop may follow."""
        if not followed(tree, loop):
            return []
        changed = {use.name for use in self._uses.in_order(loop.body) if use.how in WRITES} - self._clocks(loop)
        uses = [use for use in self._uses.in_order(_after(tree, loop)) if not any(map(_of_who_writes, use.under))]
        decides = {use.name for use in uses if use.how == "uses"}
        return [name for name in dict.fromkeys(_of_the_pass_before(uses)) if name in decides & changed]

    def _used_whole(self, loop: ast.For) -> set[str]:
        """Objects of the script's that are called, or passed to what is more than a log."""
        given = [part for call in calls(loop) if name_called(call) not in SHOWS for part in (call.func, *call.args)]
        return {part.id for part in given if isinstance(part, ast.Name)} & (self._uses.objects - {"self"})

    def number_used(self, loop: ast.For) -> str | None:
        """The name of `enumerate`'s number, where the loop is over that in any wrapping, and does not only show it."""
        numbers = any(getattr(each.func, "id", "") == "enumerate" for each in calls(loop.iter))
        if numbers and isinstance(loop.target, ast.Tuple):
            name = getattr(loop.target.elts[0], "id", None)
            if any(use.name == name and use.how == "uses" for use in self._uses.in_order(loop.body)):
                return name
        return None

    def _clocks(self, loop: ast.For) -> set[str]:
        """Names that are set to what a clock says, or to one of those."""
        clocks = set[str]()
        for target, value in [*assignments(loop)] * 2:  # `began = now` may be above or below `now = time.time()`
            name = self._uses.name_of(target)
            if name and (name_called(value) in CLOCKS or self._uses.name_of(value) in clocks):
                clocks.add(name)
        return clocks


def _after(tree: ast.Module, loop: ast.For) -> list[ast.stmt]:
    """The statements that follow in its function, or in the file."""
    found = list[ast.stmt]()
    for outer, inner in [*pairwise(way_to(scope_of(tree, loop), loop))][::-1]:
        for part in ("body", "orelse", "finalbody"):
            if inner in (block := getattr(outer, part, [])):
                found += block[block.index(inner) + 1 :]
    return found


def _of_who_writes(condition: Condition) -> bool:
    return condition.holds and condition.text.endswith(".writes")


def _of_the_pass_before(uses: Sequence[Use]) -> Iterator[str]:
    """The names of what is used, or added to, where this pass need not have set it, in the order of the uses."""
    assigned = Assigned(use.name for use in uses if use.how in WRITES)
    for use in uses:
        if use.how not in (*ANEW, "shows") and not assigned.is_set(use.name, use.under):
            yield use.name
        if use.how in WRITES and not use.by_place:  # a list stays one, and is mostly asked whether it is None
            assigned.changes(use.name, use.under)
        if use.how in ANEW:
            assigned.sets(use.name, use.under)
