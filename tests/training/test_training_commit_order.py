"""What of a commit is on disk at any moment: the new one whole or not at all, and the ones before it as long as it is
not. The coordinator is told of one that is there, and of no other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.messages import COMMITS_KEPT, Position
from dyntrain.training.worker.membership.committing import CommitWriter
from dyntrain.training.worker.state import checkpoint as module
from dyntrain.training.worker.state.checkpoint import CheckpointError, CommitDamaged, CommitStore

AT = Position(epoch=1, offset=0, step=5)


def commits(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def seen(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[tuple[str, list[str]]]:
    """What is done to the folder, each with the commits that a power cut would leave just before it."""
    moments: list[tuple[str, list[str]]] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            moments.append((name, commits(folder)))
            return real(*given, **named)

        return call

    monkeypatch.setattr(module, "write_synced", watched("written", module.write_synced))
    monkeypatch.setattr(Path, "rename", watched("named", Path.rename))
    monkeypatch.setattr(module, "sync", watched("synced", module.sync))
    monkeypatch.setattr(Path, "unlink", watched("deleted", Path.unlink))
    return moments


def test_a_commit_is_named_once_it_is_whole_on_disk_and_an_old_one_deleted_once_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [CommitStore(tmp_path).write(step, 1, b"old") for step in (1, 2)]
    store = CommitStore(tmp_path)
    moments = seen(monkeypatch, tmp_path)
    new = store.write(3, 1, b"new", keep=old[1:])
    assert moments == [("written", old), ("named", old), ("synced", [*old, new]), ("deleted", [*old, new])]
    assert commits(tmp_path) == [old[1], new]


@pytest.mark.parametrize("fails", ["write_synced", "sync"])
def test_a_failure_at_any_step_deletes_nothing_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    store = CommitStore(tmp_path)
    old = store.write(1, 1, b"old")

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, fails, full)
    with pytest.raises(CheckpointError, match="No space left on device; the previous commit is intact"):
        store.write(2, 1, b"new", keep=())
    assert store.read(old) == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_as_many_are_kept_as_the_coordinator_may_go_back_to(tmp_path: Path) -> None:
    store = CommitStore(tmp_path)
    names = [store.write(step, generation, b"x") for generation in (1, 2) for step in (10, 5, 7)]
    assert commits(tmp_path) == sorted(names)[-COMMITS_KEPT:], "of the newest generation, whatever its steps"


def test_what_the_job_may_go_back_to_stays_though_newer_ones_that_it_never_heard_of_are_there(tmp_path: Path) -> None:
    """Each of ten processes dies after its commit is on disk and before it could say so."""
    known = CommitStore(tmp_path).write(5, 1, b"known")
    for generation in range(2, 12):
        last = CommitStore(tmp_path).write(7, generation, b"unheard of", keep=[known])
    assert commits(tmp_path) == [known, last], "and what nobody knows does not fill the disk"


def test_of_its_own_commits_a_process_keeps_those_that_may_not_have_been_heard_of(tmp_path: Path) -> None:
    store = CommitStore(tmp_path)
    names = [store.write(step, 1, b"x", keep=()) for step in range(COMMITS_KEPT + 2)]
    assert commits(tmp_path) == names[-COMMITS_KEPT:]


def test_a_process_that_was_given_up_deletes_nothing_of_those_that_went_on(tmp_path: Path) -> None:
    late = CommitStore(tmp_path)
    newer = [CommitStore(tmp_path).write(step, 2, b"x") for step in (1, 2)]
    own = late.write(9, 1, b"late", keep=())
    assert commits(tmp_path) == [own, *newer]


def test_generations_and_steps_of_any_length_stay_in_their_order(tmp_path: Path) -> None:
    for step, generation in ((9, 9), (10, 9), (1, 10), (999_999, 10), (1_000_000, 10), (5, 100)):
        name = CommitStore(tmp_path).write(step, generation, b"x", keep=())
        assert commits(tmp_path) == [name]


def test_an_old_commit_that_cannot_be_deleted_is_no_failure_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CommitStore(tmp_path).write(1, 1, b"old")
    store = CommitStore(tmp_path)

    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "in use")

    with monkeypatch.context() as held:
        held.setattr(Path, "unlink", busy)
        new = store.write(2, 1, b"new", keep=())
    newer = store.write(3, 1, b"newer", keep=())
    assert commits(tmp_path) == [new, newer], "the next one tries again"


@pytest.mark.parametrize("byte", [0, 2, -17, -16, -1])
def test_one_wrong_bit_of_a_commit_or_its_checksum_is_damage(tmp_path: Path, byte: int) -> None:
    store = CommitStore(tmp_path)
    name = store.write(1, 1, b"a state of twenty bytes")
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[byte] ^= 1
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(CommitDamaged, match="its checksum is wrong"):
        store.read(name)


def test_a_commit_that_is_there_and_cannot_be_read_at_present_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would go back to an earlier one, and train again what is safe."""
    store = CommitStore(tmp_path)
    name = store.write(1, 1, b"x")

    def away(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", away)
    with pytest.raises(CheckpointError, match="whose files are unchanged") as caught:
        store.read(name)
    assert not isinstance(caught.value, CommitDamaged)


# ---- and what is said of it


def committing(folder: Path, sent: list[Any], look: Callable[[Any], None] = lambda message: None) -> CommitWriter:
    def say(message: Any) -> None:
        look(message)
        sent.append(message)

    return CommitWriter(JobFolder(folder), say)


def written(commits: CommitWriter, block: bytes, position: Position = AT) -> None:
    commits.begin_commit(3, position, memoryview(block))
    assert commits._thread is not None
    commits._thread.join()
    assert not commits.is_writing


def test_a_commit_is_told_once_it_can_be_read(tmp_path: Path) -> None:
    sent: list[Any] = []
    contents: list[bytes] = []

    def look(message: Any) -> None:
        contents.append(bytes(CommitStore(tmp_path / "elsewhere").read(message.name)))
        assert commits.is_writing, "no other is begun before the coordinator knows"

    commits = committing(tmp_path, sent, look)
    assert not commits.is_writing
    commits.store(str(tmp_path / "elsewhere"))
    written(commits, b"the state")
    assert contents == [b"the state"]
    [message] = sent
    assert message.name == "000003-000000000005.commit", "newer than any of an earlier generation"
    assert (message.type, message.generation, message.position) == ("committed", 3, AT)


def test_a_commit_that_failed_is_told_as_that_and_as_nothing_else_and_the_next_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    commits = committing(tmp_path, sent)
    commits.store(None)

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(module, "write_synced", full)
        written(commits, b"lost")
    later = Position(epoch=2, offset=0, step=9)
    written(commits, b"kept", later)
    assert [(message.type, message.generation, message.position) for message in sent] == [
        ("commit_failed", 3, AT),
        ("committed", 3, later),
    ]
    assert "No space left" in sent[0].reason


def test_commits_are_in_the_jobs_folder_or_where_the_first_order_says(tmp_path: Path) -> None:
    own = committing(tmp_path, [])
    own.store(None)
    assert (tmp_path / "commits").is_dir()
    elsewhere = committing(tmp_path, [])
    first = elsewhere.store(str(tmp_path / "a"))
    assert elsewhere.store(str(tmp_path / "b")) is first, "what is written and what is read is in one place"
    assert not (tmp_path / "b").exists()


def test_who_steps_goes_before_what_is_written(tmp_path: Path) -> None:
    sent: list[Any] = []
    niceness: list[int] = []
    before = os.getpriority(os.PRIO_PROCESS, 0)
    commits = committing(tmp_path, sent, lambda message: niceness.append(os.getpriority(os.PRIO_PROCESS, 0)))
    commits.store(None)
    written(commits, b"x")
    assert niceness[0] > before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
