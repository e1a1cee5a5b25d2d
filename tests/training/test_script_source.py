"""What follows from a script's source is worked out once for a place in it: workers that begin the same loop again, or
share a process, do not pay for it anew, and none gets what was found of another script.
"""

from __future__ import annotations

import ast
import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.script import source
from dyntrain.training.worker.script.source import Advice, Site, once_per_site
from idioms import data


class Analysis:
    """Counts its own work, and says which loaders it was told of."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.of = once_per_site(self._work)

    def _work(self, site: Site, tree: ast.Module) -> list[Advice]:
        self.sites.append(site)
        assert ast.unparse(tree) == ast.unparse(ast.parse(site.source))
        return [(site.source.splitlines()[site.line - 1].strip(), site.line, ())]


def analyse(analysis: Analysis, file: Path, text: str, **variables: Any) -> list[str]:
    """What the analysis says to a script, which asks by `ask()`."""
    file.write_text(text)
    linecache.checkcache(str(file))
    sentences: list[str] = []

    def ask() -> None:
        caller: FrameType = sys._getframe(1)
        sentences.extend(text for text, _, _ in analysis.of(caller))

    exec(compile(text, str(file), "exec"), {"ask": ask, **variables})  # noqa: S102  # our own test's lines
    return sentences


def test_one_place_is_looked_at_once_and_another_by_itself(tmp_path: Path) -> None:
    analysis, file = Analysis(), tmp_path / "script.py"
    script = "for i in range(3): ask()\nask()\n"
    for _ in range(2):
        assert analyse(analysis, file, script) == ["for i in range(3): ask()"] * 3 + ["ask()"]
    assert [site.line for site in analysis.sites] == [1, 2]


def test_another_source_of_the_same_file_is_looked_at_anew(tmp_path: Path) -> None:
    analysis, file = Analysis(), tmp_path / "script.py"
    assert analyse(analysis, file, "ask()") == ["ask()"]
    assert analyse(analysis, file, "(ask(), 1)") == ["(ask(), 1)"]


def test_the_same_source_in_another_file_is_named_by_its_own(tmp_path: Path) -> None:
    analysis = Analysis()
    for name in ("one.py", "other.py"):
        analyse(analysis, tmp_path / name, "ask()")
    assert [Path(site.file).name for site in analysis.sites] == ["one.py", "other.py"]


def test_which_variables_hold_loaders_is_a_part_of_the_place(tmp_path: Path) -> None:
    """A loop over one is a loop over batches; over a list it is none."""
    analysis, file = Analysis(), tmp_path / "script.py"
    loader = ElasticJob.join().loader(data(), 12)
    inside = "def f(loader):\n    batches = loader\n    ask()\nf(loader)\n"
    for value in (loader, [1, 2]):
        assert analyse(analysis, file, inside, loader=value) == ["ask()"]
    assert [sorted(site.loader_names) for site in analysis.sites] == [["batches", "loader"], []]


def test_a_variable_that_is_not_fit_to_be_asked_is_left_alone(tmp_path: Path) -> None:
    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise RuntimeError("outside of a request")

    assert analyse(Analysis(), tmp_path / "script.py", "ask()", proxy=Proxy()) == ["ask()"]


def test_where_there_is_no_tree_nothing_is_found_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection in the midst of parsing may have disturbed it: the next one sees the script."""
    analysis, file = Analysis(), tmp_path / "script.py"
    with monkeypatch.context() as patched:

        def parse(text: str) -> ast.Module:
            raise SystemError("AST constructor recursion depth mismatch")

        patched.setattr(source.ast, "parse", parse)
        assert analyse(analysis, file, "ask()") == []
    assert analyse(analysis, file, "ask()") == ["ask()"]
    assert analyse(analysis, tmp_path / "torn.py", "ask()") == ["ask()"]
