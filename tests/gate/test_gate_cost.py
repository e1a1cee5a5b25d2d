"""What a run says of its cost, and which cases of many it takes."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import second_look
from matrices import crossed, pairwise

TESTS = Path(second_look.__file__).parent
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from cost import Costs
from second_look import add_option as pytest_addoption
def pytest_configure(config):
    config.pluginmanager.register(Costs())
"""
BURN = "import time\nuntil = time.process_time() + {seconds}\nwhile time.process_time() < until: pass\n"
DEAR = f"""
import subprocess, sys
def test_in_a_child():
    subprocess.run([sys.executable, "-c", {BURN.format(seconds=0.9)!r}], check=True)
"""
CHEAP = f"""
def test_here():
    exec({BURN.format(seconds=0.2)!r})
"""


@pytest.mark.parametrize("spread", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_run_names_its_dearest_files_and_what_all_of_it_took(tmp_path: Path, spread: tuple[str, ...]) -> None:
    """Children's time, too: most of what is dear starts processes."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_dear.py").write_text(DEAR)
    (tmp_path / "test_cheap.py").write_text(CHEAP)
    plugins = ("-p", "xdist.plugin", "-p", "no:cacheprovider")
    command = [sys.executable, TESTS / "second_look.py", "-q", *plugins, "--", *spread]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    costs = re.findall(r"^ +([\d.]+)  (\S+)$", done.stdout, re.MULTILINE)
    assert [file for _, file in costs] == ["test_dear.py", "test_cheap.py"]
    assert float(costs[0][0]) >= 0.9
    assert float(costs[1][0]) >= 0.2
    assert re.search(r"^\d+\.\d minutes of processor$", done.stdout, re.MULTILINE)


def test_the_minutes_are_also_those_of_what_was_waited_for() -> None:
    before = second_look.processor_minutes()
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    assert (second_look.processor_minutes() - before) * 60 >= 0.3


def selected(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases if not case.marks]


def test_of_two_factors_each_value_of_the_one_meets_some_of_the_other_and_none_is_left_out() -> None:
    cases = crossed("abcdefgh", range(4))
    assert [case.values for case in cases] == list(itertools.product("abcdefgh", range(4)))
    chosen = selected(cases)
    assert [row for row, _ in chosen] == sorted("abcdefgh" * 2)
    assert sorted(column for _, column in chosen) == sorted([*range(4)] * 4)
    assert {mark.name for case in cases for mark in case.marks} == {"matrix"}


def test_of_several_factors_each_pair_of_values_is_met() -> None:
    factors = ["abc", range(3), [True, False], "xy"]
    cases = pairwise(*factors)
    assert [case.values for case in cases] == list(itertools.product(*factors))
    chosen = selected(cases)
    for one, other in itertools.combinations(range(len(factors)), 2):
        assert {(case[one], case[other]) for case in chosen} == set(itertools.product(factors[one], factors[other]))
    assert len(chosen) <= 10
