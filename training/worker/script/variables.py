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

from dyntrain.training.worker.script.left_early import begins, is_of_batches, names_in
from dyntrain.training.worker.script.once import set_once
from dyntrain.training.worker.script.parts import assignments, calls, name_called
from dyntrain.training.worker.script.reads import Reads
from dyntrain.training.worker.script.source import Site, once_a_site

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
BESIDE_EPOCHS = (
    "%s, line %d: what goes beside the epochs in zip(...) begins anew on a worker that joins, and after a restart: by "
    "the epoch's own number, values[epoch]"
)
EPOCHS_NUMBERED = (
    "%s, line %d: the number %s of enumerate(...) over the epochs begins at 0 on a worker that joins, and after a "
    "restart: the epoch itself is the number, an int"
)
DRAWN = (
    "%s, line %d: the generator %s goes on from pass to pass: on a worker that joins it begins anew, and a step that "
    "is void draws twice. epoch.random(name) is a generator that is the same on all"
)
LATER = (
    "%s, line %d: %s is changed in the loop, and used after it, where another loop may follow: a worker that begins in "
    "that one has what it is above this loop. What is used later belongs in the job's memory: memory = job.memory(%s)"
)
COUNTS = {"enumerate", "zip"}
Finding = tuple[str, tuple[str | int, ...]]  # a sentence, and what is put in
log = logging.getLogger(__name__)


def tell_of_variables(caller: FrameType) -> None:
    """`caller` is about to begin a loop over epochs."""
    for sentence, values in _findings_of(caller):
        log.warning(sentence, *values)


def _findings(site: Site, tree: ast.Module) -> tuple[Finding, ...]:
    reads = Reads(tree)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and begins(node, site.line)]
    return tuple(finding for loop in loops for finding in _of_loop(site, tree, reads, loop))


NOTHING: tuple[Finding, ...] = ()
_findings_of = once_a_site(_findings, without=NOTHING)


def _of_loop(site: Site, tree: ast.Module, reads: Reads, loop: ast.For) -> Iterator[Finding]:
    file, line, epoch = site.file, loop.lineno, names_in(loop.target)
    _put_in(loop)
    batches = [each for each in ast.walk(loop) if isinstance(each, ast.For) and is_of_batches(each.iter, site, epoch)]
    found = list(dict.fromkeys(name for each in (loop, *batches) for name in reads.carried(each)))
    for name in (each for each in found if each in reads.generators):
        yield DRAWN, (file, line, name)
    if others := [each for each in found if each not in reads.generators]:
        yield CARRIED, (file, line, ", ".join(others), _memory_of(others))
    if later := [each for each in reads.used_later(tree, loop) if each not in found]:
        yield LATER, (file, line, ", ".join(later), _memory_of(later))
    if any(name_called(call) == "zip" for call in calls(loop.iter)):
        yield BESIDE_EPOCHS, (file, line)
    if number := reads.number_used(loop):
        yield EPOCHS_NUMBERED, (file, line, number)
    for at, test, what in set_once(loop, epoch, reads.job_has):
        yield ONCE, (file, at, test, what)
    for each in batches:
        if any(name_called(call) == "zip" for call in calls(each.iter)):
            yield ZIPPED, (file, each.lineno)
        if number := reads.number_used(each):
            yield NUMBERED, (file, each.lineno, number)


def _put_in(loop: ast.For) -> None:
    """In place: what batches are counted by, where that has a name (`bar = enumerate(...)`)."""
    named = {to.id: value for to, value in assignments(loop) if isinstance(to, ast.Name)}
    counted = {name: value for name, value in named.items() if COUNTS & set(map(name_called, calls(value)))}
    for each in ast.walk(loop):
        if isinstance(each, ast.For) and counted:
            each.iter = _InPlace(counted).visit(each.iter)


class _InPlace(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # as the library calls it
        return self._values.get(node.id, node)


def _memory_of(names: Sequence[str]) -> str:
    return ", ".join(f"{re.split('[.[]', name.rstrip(']'))[-1]}=..." for name in names)
