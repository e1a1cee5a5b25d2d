"""Channels on buckets as the world's writers leave them.

What would break for a user: a channel that is refused for an empty shard, that takes another one's records, or ends in
a bare error without the bucket and the key.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from botocore.exceptions import ClientError
from channel_bed import whole, write
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.training.feed.listing import translated_s3_errors
from dyntrain.training.feed.places import ChannelError, checked_source
from dyntrain.training.worker.channel.records import open_channel, record_starts_in_index

import mxnet as mx  # isort: skip


def records(source: str) -> list[bytes]:
    return [record for shard in open_channel(source) for record in (shard[i] for i in range(len(shard)))]


@pytest.mark.parametrize("with_index", [True, False])
def test_empty_shards_are_passed_over_with_a_warning(
    s3: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, with_index: bool
) -> None:
    """im2rec's last part is empty where there are fewer images than parts."""
    expected = write(s3, tmp_path, {"a": [b"1", b"2"], "b": []})
    if not with_index:
        s3.delete_object(Bucket="data", Key="sets/train/b.idx")
    with caplog.at_level(logging.WARNING):
        assert records("s3://data/sets/train/") == expected["a"]
    assert "skipped these empty objects: sets/train/b.rec" in caplog.text
    for suffix in (".rec", ".idx"):
        s3.delete_object(Bucket="data", Key=f"sets/train/a{suffix}")
    with pytest.raises(ChannelError, match="all its objects are empty"):
        open_channel("s3://data/sets/train/")


def test_a_prefix_is_a_folder_also_without_its_slash(s3: Any, tmp_path: Path) -> None:
    first = write(s3, tmp_path, {"a": [b"1"]}, "train/")["a"]
    write(s3, tmp_path, {"b": [b"2"]}, "train2/")
    assert records("s3://data/train") == records("s3://data/train/") == first
    parts = write(s3, tmp_path, {"part-0": [b"3"], "part-1": [b"4"]}, "flat/")
    write(s3, tmp_path, {"x": [b"5"]}, "flat/part-old/")
    assert records("s3://data/flat/part-") == parts["part-0"] + parts["part-1"], "of files, what their names begin with"


@pytest.mark.parametrize("name", ["my_bucket", "My.Bucket", "b" * 70, "imagenet_2012"])
def test_buckets_with_names_of_before_2018_are_read_as_they_are(name: str) -> None:
    assert checked_source(f"s3://{name}/train/") == f"s3://{name}/train/"


@pytest.mark.parametrize(
    "source", ["s3://bu ck/x", "s3://buck:y/x", "s3:///x", "s3://b/x", "S3://data/x", "gs://data/x"]
)
def test_what_is_no_bucket_is_refused_whole(source: str) -> None:
    """A name that is cut short is another bucket, which may be anybody's."""
    with pytest.raises(ChannelError, match="no s3://BUCKET/PREFIX"):
        checked_source(source)


def test_what_is_missing_is_told_by_name(s3: Any) -> None:
    with pytest.raises(ChannelError, match="s3://nowhere-to-be-found/x/: this bucket does not exist"):
        open_channel("s3://nowhere-to-be-found/x/")
    with pytest.raises(ChannelError, match=r"s3://data/gone\.manifest: this S3 object does not exist"):
        open_channel("s3://data/gone.manifest,manifest")


@pytest.mark.parametrize(
    ("code", "message"), [("AccessDenied", "do not allow reading"), ("403", "do not allow reading"), ("500", "")]
)
def test_what_no_waiting_mends_is_told_and_what_passes_is_not(code: str, message: str) -> None:
    error = ClientError({"Error": {"Code": code, "Message": "m"}}, "GetObject")
    with (
        pytest.raises(ChannelError if message else ClientError, match=message or code),
        translated_s3_errors("s3://data/x"),
    ):
        raise error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"0\t0\n1\t18446744073709551615\n", r"line 2, '1\\t18446744073709551615'"),
        (b"0\t0\n1\t99\n", "line 2"),
        (b"0\t0\nname\n", "line 2, 'name'"),
        (b"0\t0\n0\t0\n", "no offset twice"),
    ],
)
def test_an_index_that_is_wrong_is_told_with_its_line(text: bytes, message: str) -> None:
    with pytest.raises(ChannelError, match=f"s3://data/a.idx is no RecordIO index.*{message}"):
        record_starts_in_index(text, "s3://data/a.idx", 99)


def test_keys_may_have_spaces_and_be_there_twice(caplog: pytest.LogCaptureFixture) -> None:
    assert record_starts_in_index(b"a cat.jpg\t0\na dog.jpg\t40\n", "i", 99).tolist() == [0, 40]
    assert record_starts_in_index(b"0 0\n1 40\n", "i", 99).tolist() == [0, 40]
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert record_starts_in_index(b"7\t0\n7\t40\n", "i", 99).tolist() == [0, 40]
    assert "1 keys name 2 records; all records are read" in caplog.text


def test_the_index_that_the_sentence_advises_is_mxnets_own(tmp_path: Path, s3: Any) -> None:
    """Of records in one part and in several."""
    magic = (0xCED7230A).to_bytes(4, "little")
    expected = write(s3, tmp_path, {"a": [b"1", magic * 3, b"", b"abcd" + magic + b"x"]})["a"]
    written = (tmp_path / "a.idx").read_text()
    refused = CliRunner().invoke(main, ["index", str(tmp_path / "a.rec")])
    assert (refused.exit_code, "--force" in refused.output) == (1, True)
    (tmp_path / "a.idx").unlink()
    done = CliRunner().invoke(main, ["index", str(tmp_path / "a.rec")])
    assert (done.exit_code, "4 records" in done.output) == (0, True)
    assert (tmp_path / "a.idx").read_text() == written
    assert list(whole(tmp_path / "a.rec")) == expected


@pytest.mark.parametrize("cut", [1, 3, 9])
def test_a_damaged_file_gets_no_index(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "a.rec"
    writer = mx.recordio.MXRecordIO(str(file), "w")
    writer.write(b"12345678")
    writer.close()
    file.write_bytes(file.read_bytes()[:-cut])
    done = CliRunner().invoke(main, ["index", str(file)])
    assert (done.exit_code, "is no RecordIO file" in done.output) == (1, True)
    assert not file.with_suffix(".idx").exists()
