"""What a feeder says goes into a FIFO whole and once, however often feeders die and wherever they are when they do.

What would break for a user: a byte that is lost or doubled makes every record behind it another one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import Deadline
from dyntrain.training.feed.crc import library_crc
from dyntrain.training.feed.dealing import Piece, Position
from dyntrain.training.feed.feeder import Writer, fork, stream_messages, write_all
from dyntrain.training.feed.places import S3Object
from dyntrain.training.feed.pump import ENDED, FAILED, GOING, LEFT, MOST_DEATHS, Pump
from feed_bed import tf_record

DRAW = random.Random(7)
CONTENT = {
    name: b"".join(tf_record(DRAW.randbytes(DRAW.randint(0, 60_000))) for _ in range(20)) for name in ("a", "b", "c")
}
STREAM = [Piece(S3Object("b", name, len(content), "e")) for name, content in CONTENT.items()]


def read(source: S3Object, start: int) -> bytes:
    return CONTENT[source.key][start : start + 9_000]


class Dying:
    """Feeders of which each dies after so many bytes as the seed says, in the middle of a write too; 0: at once."""

    def __init__(self, seed: int, most: int) -> None:
        self.draw, self.most, self.begun = random.Random(seed), most, 0

    def __call__(self, position: Position, skip: int) -> tuple[int, int]:
        self.begun += 1
        left = self.draw.randint(self.most // 2, self.most)

        def work(write: Writer) -> None:
            def dying(contents: Sequence[bytes | memoryview]) -> None:
                nonlocal left
                for content in contents:
                    write([memoryview(content)[:left]])
                    left -= len(content)
                    if left <= 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            write_all(dying, stream_messages(read, STREAM, position, skip, "", library_crc()), "train")

        return fork(work)


@pytest.mark.parametrize("spliced", [True, False], ids=["spliced", "copied"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_dies_each_byte_is_written_once(seed: int, spliced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not spliced:
        monkeypatch.delattr(os, "splice")
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.extend(iter(lambda: os.read(reads, 50_000), b"")))
    feeders = Dying(seed, 700_000)
    pump = Pump("train_0", STREAM, writes, feeders)
    reader.start()
    deadline = Deadline(60)
    while pump.state == GOING:
        assert not deadline.passed()
        pump.move_data()
    pump.close()
    reader.join()
    os.close(reads)
    assert (pump.state, pump.position) == (ENDED, Position(3))
    assert b"".join(seen) == b"".join(CONTENT.values())
    assert feeders.begun > 2, "some have died"


def test_feeders_that_die_without_a_byte_are_given_up_with_the_place() -> None:
    reads, writes = os.pipe()
    feeders = Dying(0, 1)
    pump = Pump("train_0", STREAM, writes, feeders)
    deadline = Deadline(60)
    while pump.state == GOING and not deadline.passed():
        pump.move_data()
    assert pump.state == FAILED
    assert pump.problem == f"train_0: its feeder ended {MOST_DEATHS} times at s3://b/a, byte 0, last by signal 9"
    assert feeders.begun == MOST_DEATHS + 1
    pump.close()
    os.close(reads)


def test_a_reader_that_leaves_leaves_no_feeder_behind() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    children = lambda: Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()  # noqa: E731
    before = children()
    pump = Pump("train_0", STREAM, writes, Dying(0, 10**9))
    os.close(reads)
    deadline = Deadline(60)
    while pump.state == GOING and not deadline.passed():
        pump.move_data()
    assert pump.state == LEFT
    pump.close()
    assert children() == before
