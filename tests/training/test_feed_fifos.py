"""Programs that read S3 through FIFOs, with an S3 that cuts, refuses and is slow.

What would break for a user: records lost, doubled or torn; an end of an epoch that is none; ranks that wait for ever
for a FIFO that another one reads.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from channel_bed import Environ
from dyntrain.controller.local.pace import patient
from dyntrain.training.feed.channels import channels_of
from dyntrain.training.feed.keeper import FifoKeeper
from faulty_s3 import Plan, faulty
from feed_bed import Feed, noise, put, record_io, tf_record
from feed_reader import named
from waiting import wait_for

TRAIN = ("--channel", "train=s3://data/train/")


@pytest.mark.parametrize(
    ("frame", "record_format"),
    [(tf_record, "TFRecord"), (record_io, "RecordIO"), (lambda data: data.hex().encode() + b"\n", "TextLine")],
)
def test_each_record_comes_once_an_epoch_also_when_s3_cuts_and_refuses(
    s3: Any,
    endpoint: str,
    through: Environ,
    feed: Feed,
    frame: Callable[[bytes], bytes],
    record_format: str,
) -> None:
    parts = {f"{name}.bin": noise(name, 60) for name in ("a", "b")}
    put(s3, parts, frame)
    s3.put_object(Bucket="data", Key="train/empty.bin", Body=b"")
    plan = Plan(of=".bin", refused=3, cut=30_000)
    with faulty(endpoint, plan) as address:
        through(address)
        options = (
            "--channel",
            f"train=s3://data/train/,format={'lines' if record_format == 'TextLine' else record_format}",
        )
        assert feed.run(f"$READ train {record_format} 2 $OUT/seen 0", *options) == 0, feed.output()
    text = record_format == "TextLine"
    expected = [named(one.hex().encode() if text else one) for name in sorted(parts) for one in parts[name]]
    assert feed.seen() == [("train", 0, expected), ("train", 1, expected)]
    begun = [header.removeprefix("bytes=").removesuffix("-") for header in plan.ranges]
    assert begun[:3] == ["0", "30000", "60000"], "each goes on at the byte where the one before was cut"
    assert "1 empty objects are skipped, such as s3://data/train/empty.bin" in feed.output()
    assert not list(feed.root.iterdir()), "no FIFO is left"


def test_the_documents_own_channels_a_rank_each_shuffled_by_a_seed(s3: Any, feed: Feed) -> None:
    expected = {}
    for rank in range(4):
        parts = {f"{number}.tfrecord": noise(f"{rank}-{number}", 5, 50) for number in range(5)}
        expected[rank] = put(s3, parts, below=f"train/train/{rank}/")
    channels = [
        word for rank in range(4) for word in ("--channel", f"train_{rank}=s3://data/train/train/{rank}/,shuffle=234")
    ]
    channels += ["--channel", "eval=s3://data/train/train/0/"]
    ranks = " & ".join(f"RANK={rank} $READ train_{rank} TFRecord 3 $OUT/seen{rank} 0" for rank in range(4))
    assert feed.run(f"{ranks} & wait", *channels, "--workers-per-node", "4") == 0
    for rank in range(4):
        epochs = feed.seen(f"seen{rank}")
        assert [epoch for _, epoch, _ in epochs] == [0, 1, 2]
        orders = [tuple(dict.fromkeys(one.split("/")[0] for one in seen)) for _, _, seen in epochs]
        assert len(set(orders)) > 1, "another order of objects each epoch"
        for _, _, seen in epochs:
            assert Counter(seen) == Counter(one for part in expected[rank].values() for one in part)


def test_shards_and_objects_are_dealt_to_ranks(s3: Any, feed: Feed) -> None:
    sharded = {f"{rank}/a": noise(f"s{rank}", 3, 10) for rank in range(2)}
    put(s3, sharded, below="sharded/")
    flat = {name: noise(name, 4, 10) for name in ("p", "q", "r")}
    put(s3, flat, below="flat/")
    read = " & ".join(
        f"$READ {name}_{rank} TFRecord 1 $OUT/{name}{rank} 0" for name in ("train", "flat") for rank in range(2)
    )
    options = "--channel", "train=s3://data/sharded", "--channel", "flat=s3://data/flat/,shuffle=1"
    assert feed.run(f"{read} & wait", *options, NUM_NODES="2", NODE_RANK="0") == 0, feed.output()
    for rank in range(2):
        assert feed.seen(f"train{rank}")[0][2] == [named(one) for one in sharded[f"{rank}/a"]]
    both = Counter(one for rank in range(2) for one in feed.seen(f"flat{rank}")[0][2])
    assert both == Counter(named(one) for records in flat.values() for one in records)


def test_a_killed_feeder_goes_on_at_the_next_byte(s3: Any, endpoint: str, through: Environ, feed: Feed) -> None:
    parts = {f"{name}.tfrecord": noise(name, 200, 20_000) for name in ("a", "b")}
    put(s3, parts)
    with faulty(endpoint, Plan(of=".tfrecord", pause=0.03)) as address:
        through(address)
        process = feed.start("$READ train TFRecord 1 $OUT/seen 0", *TRAIN)
        killed: set[int] = set()

        def feeder() -> int:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            mine = [int(pid) for pid in children if b"dyntrain.training.feed" in _words(int(pid))]
            return next((pid for pid in mine if pid not in killed and _streams(pid)), 0)

        for _ in range(4):
            pid = wait_for(lambda: feeder() or process.poll() is not None, 30, feed.output)
            if pid is True:
                break
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        assert len(killed) >= 3, "or it was too fast to be killed"
        assert process.wait(patient(60)) == 0, feed.output()
    assert feed.seen() == [("train", 0, [named(one) for name in sorted(parts) for one in parts[name]])]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _streams(pid: int) -> bool:
    """It has a connection: it is no lister any more, and has begun."""
    try:
        return any(os.readlink(one).startswith("socket:") for one in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_when_the_feed_itself_is_killed_its_program_is_too(s3: Any, feed: Feed) -> None:
    """Else its reader would take the broken stream for the end of the epoch."""
    put(s3, {"a": noise("a", 5)})
    process = feed.start(
        "echo $$ > $OUT/pid.new; mv $OUT/pid.new $OUT/pid; exec sleep 1000", *TRAIN, "--workers-per-node", "2"
    )
    pid = int(wait_for(lambda: (feed.folder / "pid").exists() and (feed.folder / "pid").read_text(), 30))
    process.kill()
    process.wait()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _words(pid) == b"", 10)


def test_no_reader_takes_the_feeds_death_for_an_end(s3: Any, endpoint: str, through: Environ, feed: Feed) -> None:
    """Also one that the program has started, of which the kernel knows nothing."""
    put(s3, {"a.tfrecord": noise("a", 300, 20_000)})
    with faulty(endpoint, Plan(of=".tfrecord", pause=0.05)) as address:
        through(address)
        reads = (
            "for i in 0 1; do $READ train_$i TFRecord 1 $OUT/seen 0 & echo $! >> $OUT/pids; done; touch $OUT/all; wait"
        )
        put(s3, {"b.tfrecord": noise("b", 300, 20_000)})
        process = feed.start(reads, *TRAIN, "--workers-per-node", "2")
        wait_for(lambda: (feed.folder / "all").exists() and len(list(feed.root.glob("train_?_1"))) == 2, 30)
        wait_for(lambda: sum(map(_streams, _children(process.pid))) == 2, 30, feed.output)
        children = _children(process.pid)
        process.kill()
        process.wait()
        readers = [int(pid) for pid in (feed.folder / "pids").read_text().split()]
        wait_for(lambda: not any(map(_words, [*readers, *children])), 20, "all are gone")
    assert feed.seen() == []


def test_a_second_reader_is_refused_by_name(s3: Any, endpoint: str, through: Environ, feed: Feed) -> None:
    """In place of a deadlock; the first one's records are whole."""
    records = noise("a", 300, 20_000)
    put(s3, {"a.tfrecord": records})
    with faulty(endpoint, Plan(of=".tfrecord", pause=0.02)) as address:
        through(address)
        second = "$READ train TFRecord 1 $OUT/second 0 2>$OUT/refused; echo $? > $OUT/code"
        first = f"RANK=0 $READ train TFRecord 2 $OUT/seen 0 & while [ ! -e {feed.root}/train_1 ]; do sleep 0.1; done"
        assert feed.run(f"{first}; export RANK=1; {second}; wait", *TRAIN) == 0, feed.output()
    assert feed.seen() == [("train", epoch, list(map(named, records))) for epoch in (0, 1)]
    assert feed.seen("second") == []
    assert (feed.folder / "code").read_text() == "1\n"
    refused = next(line for line in feed.sentences() if "refused" in line)
    assert "train_0 is refused to process" in refused
    assert ", rank 1 (" in refused
    assert ", rank 0 (python feed_reader.py) reads it" in refused
    assert refused[:40] in (feed.folder / "refused").read_text(), "the second one's own error says it too"


def test_two_readers_at_once_end_the_job_with_both_names(s3: Any, feed: Feed) -> None:
    """Before the feed has looked they share one pipe, so neither can be given what is whole."""
    put(s3, {"a.tfrecord": noise("a", 50)})
    code = 'import sys, time; file = open(sys.argv[1]); open(sys.argv[2], "w"); time.sleep(1000)'
    read = f"for i in 1 2; do {sys.executable} -c '{code}' {feed.root}/train_0 $OUT/open$i & done; wait"
    process = feed.start(f"touch $OUT/runs; while [ ! -e $OUT/go ]; do sleep 0.05; done; {read}", *TRAIN)
    wait_for(lambda: (feed.folder / "runs").exists(), 30)
    process.send_signal(signal.SIGSTOP)
    (feed.folder / "go").touch()
    wait_for(lambda: all((feed.folder / f"open{number}").exists() for number in (1, 2)), 30)
    process.send_signal(signal.SIGCONT)
    assert process.wait(patient(60)) == 1
    assert "train_0 was opened by two processes at once, process" in feed.sentences()[-1]


def test_a_reader_that_stops_early_holds_nothing_up(s3: Any, feed: Feed) -> None:
    parts = {name: noise(name, 100, 20_000) for name in ("a.tfrecord", "b.tfrecord")}
    expected = put(s3, parts)
    assert feed.run("$READ train TFRecord 3 $OUT/seen 7", *TRAIN) == 0, feed.output()
    assert feed.seen() == [("train", epoch, expected["a.tfrecord"][:7]) for epoch in range(3)]
    # A process that has ended by the time that it is looked up has no name any more
    assert re.search(r"train_0: (process \d+ \(.*\)|its reader) closed it before its end", feed.output())


@pytest.mark.parametrize("way", ["replaced", "gone"])
def test_an_object_that_changes_in_mid_epoch_ends_the_job(
    s3: Any, endpoint: str, through: Environ, feed: Feed, way: str
) -> None:
    """The reader is given no end, which it would take for that of the epoch."""
    put(s3, {"a.tfrecord": noise("a", 5), "b.tfrecord": noise("b", 5)})
    code = 'import sys; open(sys.argv[1], "rb").read(); open(sys.argv[2], "w")'
    read = f"{sys.executable} -c '{code}'"
    process = feed.start(
        f"touch $OUT/runs; while [ ! -e $OUT/go ]; do sleep 0.05; done; {read} {feed.root}/train_0 $OUT/ended", *TRAIN
    )
    wait_for(lambda: (feed.root / "train_0").exists(), 30)
    wait_for(lambda: (feed.folder / "runs").exists(), 30)
    wait_for(lambda: _guardian_alone(_children(process.pid)), 30, "until it is listed")
    if way == "replaced":
        put(s3, {"b.tfrecord": noise("c", 5)})
    else:
        s3.delete_object(Bucket="data", Key="train/b.tfrecord")
    (feed.folder / "go").touch()
    assert process.wait(patient(60)) == 1
    reason = {"replaced": "s3://data/train/b.tfrecord was replaced since the job began", "gone": "train/b.tfrecord"}[
        way
    ]
    assert reason in feed.sentences()[-1]
    assert not (feed.folder / "ended").exists()


def _guardian_alone(children: list[int]) -> bool:
    """It leads a group of its own, which listers do not."""
    return len(children) == 1 and os.getpgid(children[0]) == children[0]


def _children(parent: int) -> list[int]:
    """That are the feed's own, not its program's."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"dyntrain.training.feed" in _words(int(pid))]


def test_a_damaged_record_is_told_with_object_and_byte(s3: Any, feed: Feed) -> None:
    records = [tf_record(one) for one in noise("a", 5, 50)]
    content = bytearray(b"".join(records))
    at = sum(map(len, records[:3]))
    content[at + 14] ^= 1
    s3.put_object(Bucket="data", Key="train/a", Body=bytes(content))
    assert feed.run("$READ train TFRecord 1 $OUT/seen 0", *TRAIN) == 1
    assert f"channel train: s3://data/train/a, record 3, at byte {at}: the record is damaged" in feed.sentences()[-1]


def test_what_cannot_be_read_is_named(s3: Any, feed: Feed) -> None:
    put(s3, {"0/a": noise("a", 2), "1/a": noise("b", 2)}, below="two/")
    s3.put_object(Bucket="data", Key="hole/0/a", Body=b"x")
    s3.put_object(Bucket="data", Key="hole/1/a", Body=b"")
    for channel, open_it, sentence in (
        ("train=s3://no-such-bucket-here/x/", False, "s3://no-such-bucket-here/x/: this bucket does not exist"),
        ("train=s3://data/nothing/", False, "channel train: there is no object at s3://data/nothing/"),
        (
            "train=s3://data/hole/",
            False,
            "shard 1 has only empty objects, such as s3://data/hole/1/a: rank 1 would read nothing",
        ),
        ("train=s3://data/two/", True, "channel train: 2 shards for 4 ranks: rank 2 would read nothing"),
        ("train=s3://data/two/0/", True, "channel train: 1 objects for 4 ranks: rank 1 would read nothing"),
    ):
        command = f"cat {feed.root}/train_3_0" if open_it else "exec sleep 1000"
        assert feed.run(command, "--channel", channel, "--workers-per-node", "4") == 1
        assert sentence in feed.sentences()[-1]


@pytest.mark.parametrize(("there", "code"), [(False, 1), (True, 3)])
def test_a_program_that_fails_before_its_channels_are_listed_is_told_what_they_lack(
    s3: Any, endpoint: str, through: Environ, feed: Feed, there: bool, code: int
) -> None:
    """Which may be why it has failed; where they lack nothing, its exit code is the last word."""
    if there:
        put(s3, {"a": noise("a", 1)})
    plan = Plan(of="/data", refused=6)
    with faulty(endpoint, plan) as address:
        through(address)
        assert feed.run("exit 3", *TRAIN) == code
    assert ("channel train: there is no object at s3://data/train/" in feed.sentences()) != there
    assert plan.ranges, "it was listed in the end"


def test_a_program_that_ends_well_before_its_channels_are_listed_is_not_held_up(
    s3: Any, endpoint: str, through: Environ, feed: Feed
) -> None:
    plan = Plan(of="/data", refused=10_000)
    with faulty(endpoint, plan) as address:
        through(address)
        assert feed.run("exit 0", *TRAIN) == 0
    assert "channel" not in feed.output()


def test_the_words_of_a_channel_are_checked(feed: Feed) -> None:
    for words, sentence in (
        (["train=data"], "data is no s3://BUCKET/PREFIX"),
        (["../x=s3://data/"], "'../x' is no valid name of a channel"),
        (["a=s3://data/x", "a=s3://data/y"], "channel a is given twice"),
        (["a=s3://data/x,mode=fast"], "mode=fast must be one of pipe, file"),
        (["a=s3://data/x,shuffle=x"], "shuffle=x must be a whole number"),
        (["a=s3://data/x,format=parquet"], "'parquet' is no format"),
        (["t=s3://data/x", "t_0=s3://data/x,mode=file"], "its folder would have the name of a FIFO of channel t"),
    ):
        assert feed.run("true", *[part for word in words for part in ("--channel", word)]) == 1
        assert sentence in feed.sentences()[-1]


def test_more_than_sagemakers_channels_are_warned_of(s3: Any, feed: Feed) -> None:
    put(s3, {"a": noise("a", 1)})
    options = [part for number in range(21) for part in ("--channel", f"c_{number}=s3://data/train/")]
    assert feed.run("$READ c_20 TFRecord 1 $OUT/seen 0", *options) == 0, feed.output()
    assert "21 pipe channels: SageMaker accepts at most 20" in feed.output()


def test_a_rank_that_never_opens_its_fifo_is_named(s3: Any, tmp_path: Path, through: Environ, endpoint: str) -> None:
    """By the clock of the feed, a minute after the first of them was opened."""
    put(s3, {name: noise(name, 1) for name in ("a", "b", "c", "d")})
    now, sentences = [0.0], list[str]()
    channels = channels_of(["train=s3://data/train/"])
    keeper = FifoKeeper(tmp_path / "data", channels, 4, range(2), sentences.append, lambda: s3, lambda: now[0])
    try:
        fd = os.open(tmp_path / "data" / "train_0_0", os.O_RDONLY | os.O_NONBLOCK)
        wait_for(lambda: keeper.handle_events(0.05) or (tmp_path / "data" / "train_0_1").exists(), 30)
        now[0] = 59.0
        keeper.handle_events(0.05)
        assert not [line for line in sentences if "opened" in line]
        now[0] = 61.0
        keeper.handle_events(0.05)
        keeper.handle_events(0.05)
        assert sentences == [
            "channel train_1: not opened yet, 60 s after train_0 was; does that rank's program read it?"
        ], "ranks 2 and 3 are another machine's"
        os.close(fd)
    finally:
        keeper.close()


def test_children_of_the_feed_are_no_second_readers(s3: Any, tmp_path: Path) -> None:
    """A child has what its parent has open until it has closed it; the program, opening a FIFO then, was ended."""
    put(s3, {"a": noise("a", 3)})
    keeper = FifoKeeper(tmp_path / "data", channels_of(["train=s3://data/train/"]), 1, range(1), print, lambda: s3)
    held, holds = os.pipe()
    slow = os.fork()
    if not slow:
        os.read(held, 1)
        os._exit(0)
    keeper.group = slow
    reader = subprocess.Popen(["cat", tmp_path / "data" / "train_0"], stdout=subprocess.PIPE)
    try:
        wait_for(lambda: keeper.handle_events(0.05) or (tmp_path / "data" / "train_1").exists(), 30)
        wait_for(lambda: keeper.handle_events(0.05) or keeper.problem or not keeper.is_reading, 30)
        assert keeper.problem == ""
    finally:
        os.write(holds, b".")
        os.waitpid(slow, 0)
        keeper.close()
        reader.communicate(timeout=patient(30))
