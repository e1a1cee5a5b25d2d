"""Training data read from S3 while it trains.

What would break for a user: records that are trained on twice or never when S3 cuts a connection or the membership
changes; a job that hangs, or goes on with other records, where somebody has to be told.
"""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from channel_bed import Environ, write
from conducted import Conductor, Death
from dyntrain.training.audit import audit
from dyntrain.training.feed.frames import MAGIC
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.stream import MAX_SKIPPED_BYTES, PATIENCE_SECONDS, PIECE_BYTES, ObjectStream
from dyntrain.training.job import ElasticJob
from dyntrain.training.launch.plan import LaunchError, parse
from dyntrain.training.ledger import Intent
from dyntrain.training.worker.channel.framing import payload
from dyntrain.training.worker.channel.objects import source_of
from dyntrain.training.worker.channel.records import Streams, open_channel, record_starts_in_index
from faulty_s3 import Plan, faulty
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, labels, mlp, numbers, weights
from mxnet import autograd

FEATURES, LABELS = numbers(SAMPLES, 4), labels(3)


def noise(count: int, most: int, seed: int) -> list[bytes]:
    """Of any length, some with the number in them that begins a record."""
    draw, magic = random.Random(seed), MAGIC.to_bytes(4, "little")
    return [
        b"".join(magic if draw.random() < 0.2 else draw.randbytes(4) for _ in range(draw.randint(0, most)))
        + draw.randbytes(draw.randint(0, 3))
        for _ in range(count)
    ]


def test_records_are_those_that_mxnet_reads_also_when_s3_cuts_and_refuses(
    s3: Any, endpoint: str, through: Environ, tmp_path: Path
) -> None:
    expected = write(s3, tmp_path, {"a": noise(40, 5000, 1), "b": noise(3, 10, 2)})
    s3.put_object(Bucket="data", Key="sets/train/README", Body=b"no data")
    plan = Plan(refused=3, cut=100_000)
    with faulty(endpoint, plan) as address:
        through(address)
        a, b = open_channel("s3://data/sets/train/")
        assert [bytes(a[index]) for index in range(len(a))] == expected["a"]
        assert [b[2], b[0], b[1]] == [expected["b"][2], expected["b"][0], expected["b"][1]]
    begun = [int(header.removeprefix("bytes=").removesuffix("-")) for header in plan.ranges]
    assert begun[:4] == [0, 100_000, 200_000, 300_000], "each goes on at the byte where the one before was cut"


def test_every_record_comes_once_an_epoch_while_members_join_die_and_leave(s3: Any, tmp_path: Path) -> None:
    records = [b"%d" % index for index in range(SAMPLES)]
    write(s3, tmp_path, {"part0": records[:9], "part1": records[9:15], "part2": records[15:]})

    def decode(record: bytes) -> Any:
        index = int(record)
        return index, FEATURES[index], LABELS[index]

    def script(job: Any) -> list[Any]:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        loader = job.loader(job.channel("train", decode, source="s3://data/sets/train/", at_once=3))
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for _, x, y in epoch.batches(loader):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(BATCH)
        return weights(net)

    expected = script(ElasticJob.join())
    conductor = Conductor({0: 2, 4: 4, 8: 1}, [Death(5, 1)], 1)
    for result in conductor.run(script):
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
    report = audit(conductor.settled, map(Intent.model_validate, conductor.intents), SAMPLES)
    assert report.exact, report


def test_loading_processes_read_with_connections_of_their_own(s3: Any, tmp_path: Path) -> None:
    expected = write(s3, tmp_path, {"a": noise(30, 100, 3)})["a"]
    job = ElasticJob.join()
    channel = job.channel("train", measured, source="s3://data/sets/train/")
    assert channel[0][0] == len(expected[0]), "the parent has a connection open when it forks"
    loader = job.loader(channel, num_workers=2)
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd")
    seen: list[int] = []
    for epoch in job.epochs(1, samples=30, global_batch=7):
        for length, x in epoch.batches(loader):
            seen += length.asnumpy().astype(int).tolist()
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            trainer.step(7)
    assert sorted(seen) == sorted(map(len, expected))


def measured(record: bytes) -> Any:
    return len(record), np.zeros(4, np.float32)


def test_a_manifest_names_the_objects(s3: Any, tmp_path: Path) -> None:
    expected = write(s3, tmp_path, {"a": [b"1"], "b": [b"2"], "c": [b"3"]})
    manifest = [{"prefix": "s3://data/sets/"}, "train/c.rec", "train/a.rec"]
    s3.put_object(Bucket="data", Key="some.manifest", Body=json.dumps(manifest).encode())
    assert [shard[0] for shard in open_channel("s3://data/some.manifest,manifest")] == expected["a"] + expected["c"]
    for wrong, message in (
        ([*manifest, "train/d.rec"], "train/d.rec, which does not exist"),
        ({}, "no manifest"),
        (1, "no manif"),
    ):
        s3.put_object(Bucket="data", Key="some.manifest", Body=json.dumps(wrong).encode())
        with pytest.raises(ChannelError, match=message):
            open_channel("s3://data/some.manifest,manifest")


def test_what_is_not_there_is_named(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ChannelError, match=r"no object whose name ends with \.rec"):
        open_channel("s3://data/sets/")
    write(s3, tmp_path, {"a": [b"1"]})
    s3.delete_object(Bucket="data", Key="sets/train/a.idx")
    with pytest.raises(ChannelError, match=r"sets/train/a\.rec has no index sets/train/a\.idx"):
        open_channel("s3://data/sets/train/")
    with pytest.raises(ChannelError, match="no s3://BUCKET/PREFIX"):
        open_channel("sets/train/")
    with pytest.raises(ChannelError, match="--channel train=s3"):
        ElasticJob.join().channel("train")
    monkeypatch.setenv("DYNTRAIN_CHANNELS", "s3://data/sets")
    assert source_of("train") == "s3://data/sets/train/"
    with pytest.raises(ChannelError, match="no valid name of a channel"):
        source_of("../x")


def test_a_launch_tells_the_workers_where_channels_lie() -> None:
    words = ["-n", "1", "--launcher", "local", "--channel", "my-train=s3://data/sets/train/"]
    environment = parse([*words, "python", "train.py"]).worker_environment
    assert source_of("my-train", environment) == "s3://data/sets/train/"
    with pytest.raises(LaunchError, match=r"--channel train=data: data is no s3://BUCKET/PREFIX"):
        parse([*words, "--channel", "train=data", "python", "train.py"])


SOURCE = S3Object("b", "k.rec", 4 * MAX_SKIPPED_BYTES, '"1"')
CONTENT = bytes(range(256)) * (SOURCE.size // 256)


class Scripted:
    """An S3 that answers by a list: bytes until a cut, or an error; then the whole."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.starts, self.now = list(answers), list[int](), 0.0

    def get_object(self, Range: str, IfMatch: str, **_: str) -> dict[str, Any]:  # noqa: N803  # boto3's names
        assert IfMatch == SOURCE.etag
        self.now += 1.0
        start = int(Range.removeprefix("bytes=").removesuffix("-"))
        self.starts.append(start)
        answer = self.answers.pop(0) if self.answers else SOURCE.size
        if isinstance(answer, Exception):
            raise answer
        return {"Body": io.BytesIO(CONTENT[start : start + answer])}

    def stream(self) -> ObjectStream:
        return ObjectStream(self, SOURCE, lambda: self.now, lambda seconds: setattr(self, "now", self.now + seconds))


def refusal(code: str, status: int) -> ClientError:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetObject")


def test_a_forked_process_does_not_read_on_from_its_parents_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that read from one socket each get a part of what comes."""
    connections: list[Scripted] = []

    def connect() -> Scripted:
        connections.append(Scripted())
        return connections[-1]

    streams = Streams(connect)
    assert streams.read(SOURCE, 0, 9) == CONTENT[:9]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert streams.read(SOURCE, 9, 9) == CONTENT[9:18]
    assert [s3.starts for s3 in connections] == [[0], [9]]


def test_what_comes_soon_is_read_through_and_what_is_far_is_asked_for() -> None:
    s3 = Scripted()
    stream = s3.stream()
    for start, length in (
        (10, 20),
        (30, PIECE_BYTES),
        (PIECE_BYTES + 5000, 7),
        (2 * MAX_SKIPPED_BYTES, 9),
        (SOURCE.size - 3, 3),
        (0, 1),
    ):
        assert stream.read(start, length) == CONTENT[start : start + length]
    assert s3.starts == [10, 2 * MAX_SKIPPED_BYTES, SOURCE.size - 3, 0]


def test_patience_ends_with_what_was_wrong_and_begins_anew_with_every_byte() -> None:
    away = ReadTimeoutError(endpoint_url="s3")
    some = [*([away] * 10), 1]
    assert Scripted(*some, *some, *some).stream().read(0, 9) == CONTENT[:9]
    s3 = Scripted(*[away] * 1000)
    with pytest.raises(ChannelError, match=r"k\.rec: no data for 90 s: Read timeout"):
        s3.stream().read(0, 9)
    assert PATIENCE_SECONDS < s3.now < PATIENCE_SECONDS + 10


@pytest.mark.parametrize(
    ("error", "message"),
    [(refusal("PreconditionFailed", 412), "was replaced"), (refusal("AccessDenied", 403), "AccessDenied")],
)
def test_what_no_patience_mends_ends_at_once(error: Exception, message: str) -> None:
    s3 = Scripted(7, error)
    with pytest.raises(ChannelError, match=message):
        s3.stream().read(0, 9)
    assert s3.starts == [0, 7]
    assert Scripted(refusal("SlowDown", 503)).stream().read(0, 9) == CONTENT[:9]


def test_an_index_of_another_object_is_told_and_no_other_bytes_are_taken_for_a_record() -> None:
    frame = MAGIC.to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc\0"
    assert payload(frame) == b"abc"
    for wrong in (
        frame[:9],
        frame[4:],
        b"",
        frame.replace(b"\x03\0\0\0", b"\x03\0\0\x40"),
        MAGIC.to_bytes(4, "little"),
    ):
        with pytest.raises(ValueError, match="record"):
            payload(wrong)
    with pytest.raises(ChannelError, match="to another object"):
        Scripted().stream().read(SOURCE.size - 1, 2)
    assert record_starts_in_index(b"5\t40\n0\t0\n", "i", 99).tolist() == [0, 40]
    for text in (b"", b"0\t1\n1\t1\n", b"x\n", b"0\tx\n", b"0\t-4\n"):
        with pytest.raises(ChannelError, match="no RecordIO index"):
            record_starts_in_index(text, "i", 99)
