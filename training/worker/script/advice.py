"""Report all advice that follows from a script's source, when a loop over epochs begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType

from dyntrain.training.checks.findings import Findings, Place
from dyntrain.training.worker.script.left_early import leavings
from dyntrain.training.worker.script.phases import unnamed
from dyntrain.training.worker.script.source import Advice, Site, once_a_site
from dyntrain.training.worker.script.variables import of_variables


def advise(findings: Findings, caller: FrameType, named: bool) -> None:
    """Report the advice on the script that begins a loop in the frame `caller`.

    `named`: whether the loop has a name. Raises ValueError for any advice if findings are strict.
    """
    if findings.off:
        return
    file = caller.f_code.co_filename
    stops = [
        findings.find(code, Place(file, line, line), **dict(values))
        for code, line, values in _of(caller)
        if not (named and code == "DT612")
    ]
    if any(stops):
        raise ValueError(findings.stops)


@once_a_site
def _of(site: Site, tree: ast.Module) -> Iterator[Advice]:
    yield from leavings(site, tree)
    yield from unnamed(site, tree)
    yield from of_variables(site, tree)
