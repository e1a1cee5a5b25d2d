"""The files that children write to: bounded, without a line lost to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.host.child_log import MAX_BYTES, ChildLog, remove_first_bytes
from dyntrain.node_bootstrap.host.logs import JsonLines, TextLines, logging_to
from dyntrain.node_bootstrap.host.processes import Children, Program
from node_fakes import living, wait_until, world

MOST = 64 * 1024


def parts(path: Path) -> list[Path]:
    """The oldest first."""
    return [*sorted(path.parent.glob(f"{path.name}.*"), key=lambda part: -int(part.suffix[1:])), path]


def whole(path: Path) -> bytes:
    return b"".join(part.read_bytes() for part in parts(path))


def numbered(count: int) -> bytes:
    return b"".join(b"line %07d\n" % number for number in range(count))


def test_no_line_is_lost_while_a_child_writes_without_a_pause(tmp_path: Path) -> None:
    """The lines that say why a worker died are the last ones, written while the file is being cut."""
    path, stop, written = tmp_path / "worker.log", threading.Event(), 0

    def write() -> None:
        nonlocal written
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        while not stop.is_set():
            while os.fstat(descriptor).st_size > 1.5 * MOST and not stop.is_set():
                time.sleep(0)  # more than twice the bound would be a flood, of which not all is kept
            os.write(descriptor, b"line %07d\n" % written)
            written += 1
        os.close(descriptor)

    writer, log = threading.Thread(target=write), ChildLog(path)
    writer.start()
    trims = 0
    try:
        while trims < 20:
            trims += log.trim(MOST, older_files=1000)
    finally:
        stop.set()
        writer.join()
    assert whole(path) == numbered(written)
    assert max(part.stat().st_size for part in parts(path)[:-1]) >= MOST


@pytest.mark.parametrize(
    "cutter",
    [remove_first_bytes, lambda descriptor, count: False],
    ids=["ext4 or XFS", "a file system that cannot cut"],
)
def test_a_log_is_bounded_and_keeps_the_latest_lines(tmp_path: Path, cutter: object) -> None:
    """A full disk ends the job, and the system with it."""
    path, lines = tmp_path / "worker.log", numbered(100_000)
    log = ChildLog(path)
    with path.open("ab", buffering=0) as file:
        for at in range(0, len(lines), 50_000):
            file.write(lines[at : at + 50_000])
            log.trim(MOST, 3, cutter)  # type: ignore[arg-type]
    assert len(parts(path)) == 4
    assert sum(part.stat().st_size for part in parts(path)) <= 4 * (MOST + 2 * 50_000)
    assert lines.endswith(whole(path))
    assert len(whole(path)) > 3 * MOST


def test_of_a_flood_between_two_looks_only_the_end_is_kept(tmp_path: Path) -> None:
    path, lines = tmp_path / "worker.log", numbered(100_000)
    path.write_bytes(lines)
    ChildLog(path).trim(MOST)
    assert [part.name for part in parts(path)] == ["worker.log.1", "worker.log"]
    assert len(whole(path)) <= 2 * MOST + 4096
    assert lines.endswith(whole(path))


def test_a_cut_that_died_half_way_is_made_again(tmp_path: Path) -> None:
    """The bootstrap may be killed at any point; some lines may be there twice then, none may be missing."""
    path, lines = tmp_path / "worker.log", numbered(20_000)
    path.write_bytes(lines)

    def killed(descriptor: int, count: int) -> bool:
        raise InterruptedError("killed before the cut")

    with pytest.raises(InterruptedError):
        ChildLog(path).trim(2 * MOST, 3, killed)
    (tmp_path / "worker.log.0").write_bytes(b"half a copy")
    assert ChildLog(path).trim(2 * MOST, 3)
    assert (tmp_path / "worker.log.1").read_bytes() + path.read_bytes() == lines[
        -len((tmp_path / "worker.log.1").read_bytes() + path.read_bytes()) :
    ]
    assert (tmp_path / "worker.log.2").exists()


def test_short_and_absent_logs_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    assert not ChildLog(path).trim(MOST)
    path.write_bytes(b"x" * MOST)
    assert not ChildLog(path).trim(MOST)
    assert parts(path) == [path]


def test_last_words_stay_a_childs_own_when_its_log_is_cut(tmp_path: Path) -> None:
    """A reason that quotes what an earlier worker said sends people to look in the wrong place."""
    path = tmp_path / "worker.log"
    path.write_bytes(numbered(20_000) + b"the earlier worker's last words\n")

    async def scenario() -> tuple[str, str]:
        children = Children(str(tmp_path), 1)
        waiting = f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
        script = f"import pathlib, sys, time\n{waiting}\nprint('mine')"
        child = await children.start("worker", Program([sys.executable, "-c", script], {}, path))
        try:
            assert child.log.trim(MOST)
            before = child.last_output()
            (tmp_path / "go").touch()
            assert await child.wait() == 0
            return before, child.last_output()
        finally:
            await children.stop_all(0.0)

    assert asyncio.run(scenario()) == ("", "mine")


def test_the_node_looks_after_its_logs_and_goes_on_where_it_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "worker.log"

    async def scenario() -> None:
        children = Children(str(tmp_path), 1)
        looking = asyncio.create_task(children.keep_logs_short(0.02))
        try:
            (tmp_path / "other.log.3").mkdir()  # in the way of the oldest part
            for name in ("other.log", "worker.log"):
                flood = [sys.executable, "-c", "print('x' * 22_000_000)"]
                child = await children.start("worker", Program(flood, {}, tmp_path / name))
                assert await child.wait() == 0
            await wait_until(
                lambda: (tmp_path / "worker.log.1").exists() and path.stat().st_size <= MAX_BYTES, "the log is cut"
            )
            assert not looking.done()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await children.stop_all(0.0)

    asyncio.run(scenario())
    assert caplog.text.count("a log cannot be kept short") == 1


def test_a_script_that_floods_its_log_is_cut_while_it_runs(tmp_path: Path) -> None:
    """The script ends once its log was cut; the pattern by which the agent finds such logs must not match the older
    part.
    """
    script = """
import pathlib, time
print("x" * 22_000_000, flush=True)
deadline = time.monotonic() + {seconds}
while not any(pathlib.Path({logs!r}).glob("prepare-1.log.1")):
    assert time.monotonic() < deadline
    time.sleep(0.02)
"""

    async def scenario() -> tuple[str, list[str]]:
        with world(tmp_path) as here:
            here.configure(
                prepare_script=here.script(script.format(logs=str(here.layout.log_folder), seconds=patient(20))),
                prepare_attempts=1,
            )
            async with living(here.dependencies(log_check_seconds=0.05)):
                await wait_until(lambda: here.reports.sent, "the node has reported", 30.0)
                return here.reports.sent[0].outcome, [
                    path.name for path in here.layout.log_folder.glob("prepare-*.log")
                ]

    assert asyncio.run(scenario()) == ("prepared", ["prepare-1.log"])


def test_a_log_line_goes_to_the_file_and_to_the_journal_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """systemd keeps what a service prints: with the machine out of reach, or the disk full, the journal is what is
    left.
    """
    with logging_to(tmp_path / "node.log", {"cluster": "demo"}):
        logging.getLogger("dyntrain.node_bootstrap.anything").warning("in two\nlines", extra={"path": tmp_path})
    output = capsys.readouterr().err
    assert output == (tmp_path / "node.log").read_text()
    assert {**json.loads(output), "time": 0} == {
        "time": 0,
        "level": "WARNING",
        "logger": "dyntrain.node_bootstrap.anything",
        "cluster": "demo",
        "message": "in two\nlines",
        "path": str(tmp_path),
    }


def test_a_span_in_a_line_for_people_has_no_more_places_than_anybody_reads() -> None:
    record = logging.LogRecord("n", logging.INFO, "", 0, "prepared", None, None)
    record.__dict__ |= {"seconds": 6.388862609863281, "tries": 3, "file": "a.b"}
    assert TextLines().format(record).endswith("prepared (seconds: 6.389, tries: 3, file: a.b)")
    assert json.loads(JsonLines({}).format(record))["seconds"] == 6.389
