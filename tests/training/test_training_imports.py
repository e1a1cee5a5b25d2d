"""What the import of MXNet takes along."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from dyntrain.training.numpy_aliases import defer_import


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_library").mkdir()
    (tmp_path / "slow_library" / "__init__.py").touch()
    (tmp_path / "slow_library" / "stats.py").write_text("answer = 42\n")
    (tmp_path / "asks_for_it.py").write_text("import slow_library.stats as ss\nfrom slow_library import stats\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("library")
def test_what_an_import_asks_for_in_vain_is_imported_when_it_is_used() -> None:
    with defer_import("slow_library.stats"):
        asking = importlib.import_module("asks_for_it")
        assert not hasattr(sys.modules["slow_library.stats"], "__file__"), "some library looks at all modules"
    assert "slow_library.stats" not in sys.modules
    assert (asking.ss.answer, asking.stats.answer) == (42, 42)
    assert importlib.import_module("slow_library.stats").answer == 42


def test_what_is_not_there_stays_away() -> None:
    with defer_import("no_such_library.stats"):
        assert "no_such_library.stats" not in sys.modules
