"""Report all advice on a user's script that its source alone gives, when a loop over epochs begins."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType

from dyntrain.training.checks.findings import Findings, Place
from dyntrain.training.worker.script.left_early import leaving_statements
from dyntrain.training.worker.script.phases import unnamed_loops
from dyntrain.training.worker.script.source import Advice, Site, once_per_site
from dyntrain.training.worker.script.variables import variable_advice


def advise(findings: Findings, caller: FrameType, has_name: bool) -> None:
    """Report the advice on the script that begins a loop in the frame `caller`.

    `has_name`: whether the loop has a name. If the mode of `findings` is strict, any advice raises ValueError.
    """
    if findings.is_off:
        return
    script_file = caller.f_code.co_filename
    stop_messages = [
        findings.find(rule_code, Place(script_file, line, line), **dict(sentence_values))
        for rule_code, line, sentence_values in _advice_at(caller)
        if not (has_name and rule_code == "DT612")
    ]
    if any(stop_messages):
        raise ValueError(findings.stop_messages)


@once_per_site
def _advice_at(site: Site, tree: ast.Module) -> Iterator[Advice]:
    yield from leaving_statements(site, tree)
    yield from unnamed_loops(site, tree)
    yield from variable_advice(site, tree)
