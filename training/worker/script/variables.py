"""Variables of a script that a worker that joins has otherwise, as the source shows them: told of in the log.

What goes from epoch to epoch, or from batch to batch, in one (`best`, `patience`, a counter) begins there with its
value above the loop, and `enumerate` over batches begins at 0. Neither matters where it is only printed.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TypeGuard

from dyntrain.training.worker.script.conditions import Assigned
from dyntrain.training.worker.script.left_early import begins, is_of_batches, names_in
from dyntrain.training.worker.script.once import set_once
from dyntrain.training.worker.script.source import tree_of
from dyntrain.training.worker.script.uses import ANEW, Use, Uses, assignments, calls, name_called

CARRIED = (
    "%s, line %d: what goes from one pass to the next in variables of the script (%s) is on a worker that joins what "
    "it is above the loop, and a step that is void counts twice. What anything is decided or computed by belongs in "
    "the job's memory: memory = job.memory(%s)"
)
NUMBERED = (
    "%s, line %d: the number %s of enumerate(...) begins at 0 on a worker that joins in the middle of an epoch, and "
    "counts a step that is void twice: epoch.enumerate(...) gives the batch's own"
)
ONCE = (
    "%s, line %d: what is set where `%s` (%s) is not set on a worker that begins after that epoch, nor on one that is "
    "restarted: with `>=` each epoch sets it"
)
ZIPPED = (
    "%s, line %d: what goes beside the batches in zip(...) begins anew on a worker that joins, and a step that is void "
    "takes the next of it: one dataset of pairs has one order, and one loader"
)
WRITES = (*ANEW, "adds")
CLOCKS = {"time", "perf_counter", "monotonic", "now"}
log = logging.getLogger(__name__)


def tell_of_variables(caller: FrameType) -> None:
    """`caller` is about to begin a loop over epochs."""
    file, tree = caller.f_code.co_filename, tree_of(caller)
    reads = Reads(tree) if tree else None
    for loop in ast.walk(tree) if tree else ():
        if reads and isinstance(loop, ast.For) and begins(loop, caller.f_lineno):
            batches = [each for each in ast.walk(loop) if _is_of_batches(each, caller, names_in(loop.target))]
            if found := list(dict.fromkeys(name for each in (loop, *batches) for name in reads.carried(each))):
                said = ", ".join(f"{re.split('[.[]', name.rstrip(']'))[-1]}=..." for name in found)
                log.warning(CARRIED, file, loop.lineno, ", ".join(found), said)
            for line, test, what in set_once(loop, names_in(loop.target), reads.job_has):
                log.warning(ONCE, file, line, test, what)
            for each in batches:
                if any(name_called(call) == "zip" for call in calls(each.iter)):
                    log.warning(ZIPPED, file, each.lineno)
                if number := reads.number_used(each):
                    log.warning(NUMBERED, file, each.lineno, number)


def _is_of_batches(node: ast.AST, caller: FrameType, epoch: set[str]) -> TypeGuard[ast.For]:
    return isinstance(node, ast.For) and is_of_batches(node.iter, caller, epoch)


class Reads:
    """Of a script."""

    def __init__(self, tree: ast.AST) -> None:
        self._uses = Uses(tree)
        self.job_has = self._uses.job_has

    def carried(self, loop: ast.For) -> list[str]:
        """What the loop's body uses as the pass before has left it, and does not only show."""
        uses = list(self._uses.in_order([loop.target, *loop.body]))
        last = {use.name: use for use in uses if use.how in WRITES}
        kept = {name for name, use in last.items() if use.how != "empties" or use.under} - self._clocks(loop)
        decides = {use.name for use in uses if use.how == "uses"}
        return [name for name in dict.fromkeys(_of_the_pass_before(uses)) if name in decides & kept]

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
