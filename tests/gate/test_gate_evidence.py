"""A test that fails once in a hundred runs can only be understood from what it left."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evidence import KEPT, LARGEST, copy, keep


def failed(name: str, **fixtures: object) -> tuple[Any, Any]:
    """A report and its test, as far as they are looked at."""
    return SimpleNamespace(sections=[]), SimpleNamespace(nodeid=f"tests/x/test_x.py::{name}", funcargs=fixtures)


def test_the_folders_of_a_failed_test_stay_and_the_failure_names_them(tmp_path: Path) -> None:
    cloud, own, other = tmp_path / "base" / "up0", tmp_path / "base" / "test_1", tmp_path / "elsewhere"
    for folder in (cloud, own, other):
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "a.log").write_text(f"of {folder.name}")
    report, item = failed("test_a[b/c]", up=SimpleNamespace(folder=cloud), tmp_path=own, seed=7, home=other)
    keep(report, item, tmp_path / "base", tmp_path / "failed")
    (_, place), *_ = report.sections
    logs = {str(path.relative_to(place)): path.read_text() for path in Path(place).rglob("*.log")}
    assert logs == {"up0/logs/a.log": "of up0", "test_1/logs/a.log": "of test_1"}


def test_a_set_up_that_failed_leaves_the_newest_folder(tmp_path: Path) -> None:
    for number, name in enumerate(("first", "second")):
        (tmp_path / "base" / name).mkdir(parents=True)
        (tmp_path / "base" / name / "log").write_text(name)
        os.utime(tmp_path / "base" / name, (number, number))
    report, item = failed("test_a")
    keep(report, item, tmp_path / "base", tmp_path / "failed")
    assert [path.read_text() for path in Path(report.sections[0][1]).rglob("log")] == ["second"]


def test_only_the_last_failures_are_kept(tmp_path: Path) -> None:
    own = tmp_path / "base"
    own.mkdir()
    places = []
    for number in range(KEPT + 2):
        report, item = failed(f"test_{number}", tmp_path=own)
        keep(report, item, tmp_path / "base", tmp_path / "failed")
        places.append(Path(report.sections[0][1]))
        os.utime(places[-1], (number, number))
    assert [place.exists() for place in places] == [False, False, *[True] * KEPT]


def test_nothing_that_would_hang_or_fill_the_disk_is_copied(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "site-packages").mkdir(parents=True)
    (place / "site-packages" / "big.py").write_text("not evidence")
    (place / "log").write_text("evidence")
    (place / "link").symlink_to("/etc/passwd")
    os.mkfifo(place / "pipe")
    with (place / "state").open("wb") as file:
        file.truncate(LARGEST + 1)
    assert copy(place, tmp_path / "target", 100) == 100 - len("evidence")
    assert [path.name for path in (tmp_path / "target").rglob("*")] == ["log"]
    assert copy(place, tmp_path / "full", 3) == 3, "no room is left"


@pytest.mark.parametrize("fixtures", [{}, {"tmp_path": None}])
def test_a_test_without_folders_leaves_nothing(tmp_path: Path, fixtures: dict[str, object]) -> None:
    report, item = failed("test_a", **fixtures)
    (tmp_path / "base").mkdir()
    keep(report, item, tmp_path / "base", tmp_path / "failed")
    assert report.sections == []
    assert not (tmp_path / "failed").exists()
