"""Vocabularies and lists of files that a script makes from a set: sample `i` must be the same on every worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.host.processes import Program
from dyntrain.node_bootstrap.supervision.wiring import worker_program

SCRIPT = "print([*{f'word {i}' for i in range(64)}])"


def order(given: dict[str, str], inherited: str = "random") -> str:
    """Of the words, in a worker whose node has `inherited`."""
    program = worker_program(Program([sys.executable, "-c", SCRIPT], given, None), Path("control.json"))
    environment = {**os.environ, "PYTHONHASHSEED": inherited, **program.environment}
    return subprocess.run(
        program.command, env=environment, capture_output=True, text=True, check=True, timeout=patient(60)
    ).stdout


def test_words_of_a_set_have_one_order_in_all_workers_whatever_their_nodes_have() -> None:
    assert order({}) == order({}) == order({}, "17")


def test_a_hash_seed_of_the_persons_own_is_kept() -> None:
    assert order({"PYTHONHASHSEED": "17"}) == order({"PYTHONHASHSEED": "17"}) != order({})
