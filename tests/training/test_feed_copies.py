"""Channels as folders, whole before the program begins.

What would break for a user: a program that trains on half of the files, a full disk that is found out after an hour,
objects that are put where they overwrite something else.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import boto3
import pytest
from channel_bed import Environ
from dyntrain.training.feed.channels import channel_of
from dyntrain.training.feed.copying import copy_channel
from dyntrain.training.feed.places import ChannelError
from faulty_s3 import Plan, faulty

CHANNEL = channel_of("train=s3://data/train/,mode=file")


def put(s3: Any, **content: bytes) -> None:
    for name, body in content.items():
        s3.put_object(Bucket="data", Key=f"train/{name.replace('__', '/')}", Body=body)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_all_is_there_also_when_s3_cuts_and_refuses(s3: Any, endpoint: str, through: Environ, tmp_path: Path) -> None:
    put(s3, a=b"a" * 200_000, sub__b=b"b", empty=b"")
    s3.put_object(Bucket="data", Key="train/sub/", Body=b"")  # what the console makes for a folder
    plan = Plan(of="/a", refused=2, cut=70_000)
    messages: list[str] = []
    with faulty(endpoint, plan) as address:
        through(address)
        copy_channel(boto3.Session().client("s3"), CHANNEL, tmp_path / "train", messages.append)
    assert read_files(tmp_path / "train") == {"a": b"a" * 200_000, "sub/b": b"b", "empty": b""}
    assert len(plan.ranges) == 3, "each goes on where the one before was cut"
    assert messages[0].startswith(f"channel train: 4 objects in {tmp_path}/train; 0.2 MB copied in ")


def test_how_far_it_is_is_said_and_what_is_there_is_not_copied_again(s3: Any, tmp_path: Path) -> None:
    put(s3, a=b"1" * 100, b=b"2" * 100)
    times = iter(range(0, 1000, 11))
    messages: list[str] = []
    copy_channel(s3, CHANNEL, tmp_path, messages.append, lambda: float(next(times)))
    assert messages[0] == "channel train: 1 of 2 objects, 0.0 MB of 0.0 MB"


@pytest.mark.parametrize("other", ["replaced", "written", "of another size", "gone", "while it was killed"])
def test_what_is_there_is_not_copied_again_but_for_what_is_not_the_object_any_more(
    s3: Any, tmp_path: Path, other: str
) -> None:
    """An object of the same size, as of features or of images decoded to one size, was taken for the file of before."""
    put(s3, a=b"1" * 100, b=b"2" * 100)
    folder = tmp_path / "train"
    copy_channel(s3, CHANNEL, folder, print)
    copied = (folder / "b").stat().st_mtime_ns, (folder / "b").stat().st_ino
    if other == "replaced":
        put(s3, a=b"3" * 100)
    elif other == "written":
        (folder / "a").write_bytes(b"x" * 100)
    elif other == "of another size":
        (folder / "a").write_bytes(b"x" * 50)
    elif other == "gone":
        (folder / "a").unlink()
    else:
        with next(tmp_path.glob(".*")).open("a") as record:
            record.write('["a", "')  # it was killed
        put(s3, a=b"3" * 100)
    copy_channel(s3, CHANNEL, folder, print)
    assert read_files(folder) == {
        "a": (b"3" if other in ("replaced", "while it was killed") else b"1") * 100,
        "b": b"2" * 100,
    }
    assert copied == ((folder / "b").stat().st_mtime_ns, (folder / "b").stat().st_ino)


def test_a_prefix_or_a_manifest_gives_the_places(s3: Any, tmp_path: Path) -> None:
    put(s3, deep__a=b"1", deep__b=b"2")
    s3.put_object(Bucket="data", Key="m", Body=b'[{"prefix": "s3://data/train/"}, "deep/b"]')
    for source, expected in (
        ("s3://data/train", {"deep/a", "deep/b"}),
        ("s3://data/train/deep/a", {"a"}),
        ("s3://data/train/deep", {"a", "b"}),
        ("s3://data/m,manifest", {"train/deep/b"}),
    ):
        folder = tmp_path / source.replace("/", "_")
        copy_channel(s3, channel_of(f"train={source},mode=file"), folder, lambda text: None)
        assert set(read_files(folder)) == expected, source


def test_a_full_disk_is_told_before_the_copy_and_in_it(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, a=b"1" * 2_000_000, b=b"2")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_500_000))
    with pytest.raises(
        ChannelError, match=r"channel train: 2\.0 MB do not fit in .*, where 1\.5 MB are free; give a"
    ) as caught:
        copy_channel(s3, CHANNEL, tmp_path / "full", lambda text: None)
    assert len(str(caught.value).split()) <= 30
    assert not read_files(tmp_path / "full")
    monkeypatch.undo()
    opened = Path.open

    def full(path: Path, *how: Any, **more: Any) -> Any:
        if path.name == "a.part":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *how, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ChannelError, match=r"channel train: 2\.0 MB do not fit"):
        copy_channel(s3, CHANNEL, tmp_path / "fuller", lambda text: None)
    assert set(read_files(tmp_path / "fuller")) <= {"b"}, "what is there is whole"


def test_an_object_that_would_lie_elsewhere_is_refused(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="data", Key="train/../../x", Body=b"1")
    with pytest.raises(ChannelError, match="would lie outside of"):
        copy_channel(s3, CHANNEL, tmp_path / "train", lambda text: None)
    assert not read_files(tmp_path)
