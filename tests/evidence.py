"""What a failed test leaves below build/failed: the files of its folders, as they were when it failed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

KEPT = 5
LARGEST = 5_000_000  # bytes of one file: logs and ledgers are smaller, states and wheels are not evidence
ALL = 200_000_000
FAILED = Path(__file__).parents[1] / "build" / "failed"
LEFT_OUT = {"site-packages", "__pycache__", "node_modules"}


def keep(report: pytest.TestReport, item: pytest.Item, base: Path, failed: Path) -> None:
    """Copies what is there to a folder below `failed`, and names it in the last line of the failure. `base`: below
    which tests have their folders.
    """
    given: Mapping[str, object] = getattr(item, "funcargs", {})
    places = sorted({place for value in given.values() for place in folders(value) if place.is_relative_to(base)})
    if not places:  # what was to make them failed
        places = sorted((path for path in base.glob("*") if path.is_dir() and not path.is_symlink()), key=_age)[:1]
    if not places:
        return
    target = failed / re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")[-150:]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    room = ALL
    for place in places:
        room = copy(place, target / place.name, room)
    report.sections.append(("what it left", str(target)))
    for old in sorted(failed.iterdir(), key=_age)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def folders(value: object) -> Iterator[Path]:
    """A fixture is a folder, or has one."""
    for folder in (value, getattr(value, "folder", None)):
        if isinstance(folder, Path) and folder.is_dir():
            yield folder.resolve()


def copy(place: Path, target: Path, room: int) -> int:
    """Plain files alone: whoever opened a pipe that a test made would wait for ever. The `room` that is left."""
    for folder, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name not in LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name)
            try:
                size = path.lstat().st_size
                if path.is_symlink() or not path.is_file() or size > min(LARGEST, room):
                    continue
                to = target / path.relative_to(place)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
            except OSError:  # it was removed just now, or is another user's
                continue
            room -= size
    return room


def _age(path: Path) -> float:
    """Youngest first."""
    try:
        return -path.lstat().st_mtime
    except OSError:
        return 0.0
