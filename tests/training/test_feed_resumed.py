"""Ranks that change in mid-epoch: what is left of it is dealt anew, among feeds, FIFOs and processes as they are.

What would break for a user: records that are trained on twice or never after a change; a rank that takes what another
one has read for the end; a checkpoint of other data that is gone on with.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.feed.dealing import Piece, deal_objects
from dyntrain.training.feed.feeder import Reader
from dyntrain.training.feed.frames import LINES, RECORDIO, TFRECORD, WHOLE_OBJECTS
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.resuming import (
    ResumeRequest,
    deal_remaining_data,
    parse_resume_request,
    position_after_records,
)
from feed_bed import Feed, noise, record_io, tf_record
from feed_reader import named
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_for

RANK = Path(__file__).parent / "feed_rank.py"
FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "TFRecord": tf_record,
    "RecordIO": record_io,
    "TextLine": lambda data: data.hex().encode() + b"\n",
}


class Rank:
    """A process that trains on its FIFO."""

    def __init__(self, feed: Feed, name: str, ranks: int, record_format: str, state: Any, most: int) -> None:
        self.out = feed.folder / f"{name}-of-{ranks}"
        words = [feed.root, name, ranks, record_format, json.dumps(state), self.out, most]
        self.process = subprocess.Popen([sys.executable, RANK, *map(str, words)])
        self.epoch, self.most = state["epoch"], most

    def trained(self, epoch: int | None = None) -> list[str]:
        path = Path(f"{self.out}.{self.epoch if epoch is None else epoch}")
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def stays(self) -> bool:
        """It has trained on as many records as it was told, or there are no more for it."""
        lines = self.trained()
        return lines[-1:] == ["the end"] or len(lines) == self.most

    def killed(self, counted: int) -> list[str]:
        """What its checkpoint has: it has read more."""
        lines = [line for line in self.trained() if line != "the end"][:counted]
        self.process.kill()
        self.process.wait()
        return lines


def start(feed: Feed, *options: str, **environment: str) -> None:
    feed.start("exec sleep 1000", "--workers-per-node", "2", *options, **environment)
    wait_for(lambda: (feed.root / "train_0").exists(), 30, feed.output)


@pytest.mark.parametrize("record_format", FRAMES)
def test_from_two_ranks_to_four_to_one_each_record_counts_once(
    s3: Any, machine: Callable[[str], Feed], record_format: str
) -> None:
    """The ranks are killed with what they have read ahead, a machine joins, and the first one is killed whole."""
    text = record_format == "TextLine"
    everything = []
    for number in range(5):
        records = noise(f"o{number}", 20 + 15 * number, 9_000)
        everything += [named(one.hex().encode() if text else one) for one in records]
        s3.put_object(Bucket="data", Key=f"train/{number}", Body=b"".join(map(FRAMES[record_format], records)))
    channel = "--channel", f"train=s3://data/train/,shuffle=3,format={'lines' if text else record_format}"
    first, second = machine("first"), machine("second")
    start(first, *channel)
    counted: Counter[str] = Counter()
    state: dict[str, Any] = {"epoch": 7, "records": []}

    def end(ranks: list[Rank], counts: list[int]) -> None:
        """Once all stay they are killed, with a checkpoint that has some of what they trained on."""
        wait_for(lambda: all(rank.stays for rank in ranks), 60, first.output)
        kept = [rank.killed(count) for rank, count in zip(ranks, counts, strict=True)]
        resumed = json.loads(Path(f"{ranks[0].out}.resumed").read_text())
        state.update(resumed, records=[*resumed["records"], list(map(len, kept))])
        for lines in kept:
            counted.update(lines)

    two = [Rank(first, f"train_{rank}", 2, record_format, state, 40) for rank in range(2)]
    end(two, [33, 40])
    start(second, *channel, NUM_NODES="2", NODE_RANK="1")
    four = [Rank((first, second)[rank // 2], f"train_{rank}", 4, record_format, state, 10) for rank in range(4)]
    end(four, [10, 0, 7, 9])
    first.running[0].kill()
    alone = Rank(second, "train_0", 1, record_format, state, 0)
    assert alone.process.wait(patient(60)) == 0, second.output()
    counted.update(line for line in alone.trained() if line != "the end")
    assert counted == Counter(everything)
    assert [len(counts) for counts in state["records"]] == [2, 4]
    assert Counter(alone.trained(8)) == Counter([*everything, "the end"]), "the next epoch is whole"


def test_who_reads_an_abandoned_fifo_is_given_no_end(s3: Any, machine: Callable[[str], Feed]) -> None:
    """A rank that lives on, of before the change, would take it for the end of its epoch."""
    records = noise("a", 400, 20_000)
    s3.put_object(Bucket="data", Key="train/a", Body=b"".join(map(tf_record, records)))
    s3.put_object(Bucket="data", Key="train/b", Body=b"".join(map(tf_record, noise("b", 1))))
    feed = machine("one")
    start(feed, "--channel", "train=s3://data/train/")
    code = "import sys; file = open(sys.argv[1], 'rb'); file.read(9); sys.stdin.readline(); file.read(); print('end')"
    old = subprocess.Popen(
        [sys.executable, "-c", code, feed.root / "train_0_0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        wait_for(lambda: (feed.root / "train_0_1").exists(), 30, "it is read")
        new = Rank(feed, "train_0", 2, "TFRecord", {"epoch": 0, "records": [[3, 0]]}, 5)
        wait_for(lambda: new.stays, 30, feed.output)
        assert new.killed(5) == [named(one) for one in records[3:8]]
        assert old.stdin is not None
        old.stdin.write(b"\n")
        old.stdin.flush()
        wait_for(lambda: _waits_at(old.pid, "train_0_0"), 30, "it has read all that was in the FIFO")
    finally:
        os.kill(old.pid, signal.SIGKILL)
    assert old.communicate()[0] == b""


def _waits_at(pid: int, fifo: str) -> bool:
    """In a read of that file."""
    number, fd, *_ = [*Path(f"/proc/{pid}/syscall").read_text().split(), "", ""]
    link = Path(f"/proc/{pid}/fd/{int(fd, 16)}") if number == "0" else Path()
    return number == "0" and fifo in os.readlink(link)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "train_0",
            '{"epoch": 0, "ranks": 1, "records": [[9]]}',
            "rank 0 cannot have trained on 9 records: its stream has 5",
        ),
        ("train_0", '{"epoch": 2, "records": [[1]], "objects": "x"}', "have changed since epoch 2 began; restart that"),
        ("train_1", '{"epoch": 0, "ranks": 1}', "train_1.resume.json: a job of 1 ranks has no rank that reads train_1"),
        (
            "train",
            '{"epoch": 0, "records": [[1, 1]]}',
            "train.resume.json: a job of 1 ranks has no rank that reads train",
        ),
        ("val_0", "{}", "val_0.resume.json: there is no channel val_0"),
        ("train_0", "[]", "train_0.resume.json is not as in CHANNELS.md"),
        ("train_0", "\\xff", "train_0.resume.json is not as in CHANNELS.md"),
        ("train_0", '{"ranks": "4"}', "train_0.resume.json: epoch, ranks and records must be whole numbers"),
        ("train_0", '{"epoch": -1}', "train_0.resume.json: epoch, ranks and records must be whole numbers"),
        (
            "train_0",
            '{"epoch": 0, "records": [[]]}',
            "train_0.resume.json: epoch, ranks and records must be whole numbers",
        ),
    ],
)
def test_what_cannot_be_gone_on_with_ends_the_job(
    s3: Any, machine: Callable[[str], Feed], name: str, content: str, sentence: str
) -> None:
    s3.put_object(Bucket="data", Key="train/a", Body=b"".join(map(tf_record, noise("a", 5))))
    feed = machine("one")
    ask = f"echo -e '{content}' > {feed.root}/x; mv {feed.root}/x {feed.root}/{name}.resume.json; exec sleep 1000"
    assert feed.run(ask, "--channel", "train=s3://data/train/") == 1
    assert sentence in feed.sentences()[-1]


def test_a_channel_of_one_reader_goes_on_too_and_a_new_rank_is_in_the_configuration(
    s3: Any, machine: Callable[[str], Feed]
) -> None:
    records = {name: noise(name, 6) for name in ("a", "b")}
    for name, content in records.items():
        s3.put_object(Bucket="data", Key=f"train/{name}", Body=b"".join(map(tf_record, content)))
    feed = machine("one")
    start(feed, "--channel", "train=s3://data/train/")
    whole = Rank(feed, "train", 1, "TFRecord", {"epoch": 0, "records": [[8]]}, 4)
    new = Rank(feed, "train_2", 3, "TFRecord", {"epoch": 0, "records": [[2, 1]]}, 1)
    wait_for(lambda: whole.stays and new.stays, 30, feed.output)
    assert whole.killed(4) == list(map(named, records["b"][2:]))
    assert new.killed(1) == [], "there are two objects, for the other two"
    assert "train_2" in json.loads((feed.root.parent / "config" / "inputdataconfig.json").read_text())


BODIES: dict[str, Callable[[int, int], bytes]] = {
    TFRECORD: lambda number, count: b"".join(tf_record(f"{number}/{one}".encode()) for one in range(count)),
    RECORDIO: lambda number, count: b"".join(record_io(f"{number}/{one}".encode()) for one in range(count)),
    LINES: lambda number, count: "\n".join(f"{number}/{one}" for one in range(count)).encode(),
    WHOLE_OBJECTS: lambda number, count: b"x" * 7 * count,
}


@given(
    kind=st.sampled_from(sorted(BODIES)),
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    ranks=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    chunk=st.integers(1, 60),
    draw=st.data(),
)
def test_whatever_was_trained_on_the_rest_is_the_rest(
    kind: str, counts: list[int], ranks: list[int], chunk: int, draw: st.DataObject
) -> None:
    bodies = {f"{number}": BODIES[kind](number, count) for number, count in enumerate(counts)}
    objects = [S3Object("b", key, len(body), "e") for key, body in bodies.items()]

    def read(source: S3Object, at: int) -> bytes:
        return bodies[source.key][at : at + chunk]

    sizes = {key: 1 if kind == WHOLE_OBJECTS else count for key, count in zip(bodies, counts, strict=True)}

    def records_of(stream: list[Piece]) -> list[tuple[str, int]]:
        return [(one.source.key, record) for one in stream for record in range(one.record, sizes[one.source.key])]

    first = deal_objects(objects, ranks[0], 1, 0)
    resume, streams, audit = ResumeRequest(0, ranks[0]), first, Counter[tuple[str, int]]()
    for number in [*ranks[1:], 1]:
        trained = [draw.draw(st.integers(0, len(records_of(stream)))) for stream in streams]
        for stream, count in zip(streams, trained, strict=True):
            audit.update(records_of(stream)[:count])
        resume = resume._replace(ranks=number, records=(*resume.records, tuple(trained)))
        streams = deal_remaining_data(first, resume, kind, lambda: read)
        assert len(streams) == number
    audit.update(records_of(streams[0]))
    assert audit == {(key, record): 1 for key, size in sizes.items() for record in range(size)}


def test_what_a_rank_says_is_what_it_is_told() -> None:
    resume = ResumeRequest(3, 4, ((640, 640), (1, 2, 3, 4)), "ab")
    assert parse_resume_request("train_0", resume.json_text().encode()) == resume
    assert parse_resume_request("train_0", b"{}") == ResumeRequest()


def test_more_records_than_a_stream_has_are_counted() -> None:
    body = tf_record(b"1") + tf_record(b"2")
    read: Reader = lambda source, at: body[at:]  # noqa: E731
    stream = [Piece(S3Object("b", "k", len(body), "e"))]
    assert position_after_records(read, stream, 2, "")[0].pieces == 1
    assert position_after_records(read, stream, 5, "")[1] == 3
    with pytest.raises(ChannelError, match="epoch 0: rank 0 cannot have trained on 5 records: its stream has 2"):
        deal_remaining_data([stream], ResumeRequest(records=((5,),)), "", lambda: read)
