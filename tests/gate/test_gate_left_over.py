"""What is left over at the end of a run is told from what others run on the same machine, or a run would be red for
their sake, or green although it left something.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import patient

PROGRAM = Path(__file__).parents[2] / ".ci" / "left_over.py"
LIKE_OURS = "dyntrain.training.launch"  # by which a process of this project is known
MARK = "DYNTRAIN_CHECKOUTS"
GONE = 2**22 + 1  # no process has such a number: it is above the greatest


@pytest.fixture
def checkouts(tmp_path: Path) -> list[Path]:
    """Two, whose names begin alike."""
    roots = [tmp_path / "a", tmp_path / "ab"]
    for root in roots:
        (root / ".ci").mkdir(parents=True)
        shutil.copy(PROGRAM, root / ".ci")
    return roots


@contextlib.contextmanager
def orphan(folder: Path, *arguments: str, mark: str | None) -> Iterator[int]:
    """A process that sleeps, whose parent has ended."""
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    environment |= {} if mark is None else {MARK: mark}
    sleep = [sys.executable, "-c", "import signal; signal.pause()", LIKE_OURS, *arguments]
    shell = ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *sleep]
    pid = int(subprocess.run(shell, cwd=folder, env=environment, capture_output=True, check=True).stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def left_over(root: Path, seconds: float = 0.0) -> tuple[int, str]:
    program = [sys.executable, str(root / ".ci" / "left_over.py"), str(seconds)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=patient(60))
    return done.returncode, done.stderr


@pytest.mark.parametrize("known_by", ["make", "folder", "file"])
def test_an_orphan_is_left_over_of_the_checkout_it_was_started_from_alone(
    checkouts: list[Path], tmp_path: Path, known_by: str
) -> None:
    with contextlib.ExitStack() as orphans:
        pids = []
        for root in checkouts:
            folder = root if known_by == "folder" else tmp_path
            arguments = [f"{root}/tool"] if known_by == "file" else []
            mark = f":{root}" if known_by == "make" else None
            pids.append(orphans.enter_context(orphan(folder, *arguments, mark=mark)))
        for root, own, other in zip(checkouts, pids, reversed(pids), strict=True):
            code, output = left_over(root)
            assert code == 1
            assert f"process {own}:" in output
            assert f"process {other}:" not in output
    for root in checkouts:
        assert left_over(root, seconds=patient(20)) == (0, "")


def test_what_a_clone_starts_is_of_the_checkout_that_made_it_too(checkouts: list[Path]) -> None:
    outer, clone = checkouts
    with orphan(clone, mark=f":{outer}:{clone}"):
        assert [left_over(root)[0] for root in checkouts] == [1, 1]


def test_who_started_it_counts_more_than_where_it_runs(checkouts: list[Path]) -> None:
    here, there = checkouts
    with orphan(here, mark=f":{there}"):
        assert [left_over(root)[0] for root in checkouts] == [0, 1]


def test_a_link_is_of_its_owner_s_checkout_and_without_an_owner_of_whoever_runs_when_it_appears(
    checkouts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = checkouts
    program = runpy.run_path(str(here / ".ci" / "left_over.py"))
    links = tmp_path / "net"
    links.mkdir()
    monkeypatch.setitem(program["left_over"].__globals__, "LINKS", links)
    monkeypatch.setenv("LINKS_BEFORE", f"lo dt{GONE:x}-0")
    with orphan(here, mark=f":{here}") as own, orphan(there, mark=f":{there}") as other:
        for name in ("lo", f"dt{own:x}-0", f"dt{own:x}-0v1", f"dt{other:x}-0", f"dt{GONE:x}-0", f"dt{GONE:x}-1"):
            (links / name).touch()
        names = {line.split()[1].rstrip(",") for line in program["left_over"]() if line.startswith("link ")}
    assert names == {f"dt{own:x}-0", f"dt{own:x}-0v1", f"dt{GONE:x}-1"}
