"""The code of an elastic job on the volume that its nodes share: whole, once, and nothing outside of its folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.job.command import CommandFailed
from dyntrain.node_bootstrap.job.fetch import SOURCE_FILE, Download, fetch_code
from dyntrain.node_bootstrap.reports.config import with_code_fetching_script, with_volume_at, working_folder

SOURCE = "s3://anybodys-jobs/digits/code.tar.gz"


def archive(**files: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def giving(content: bytes) -> Download:
    def download(bucket: str, key: str, path: str) -> None:
        assert (bucket, key) == ("anybodys-jobs", "digits/code.tar.gz")
        Path(path).write_bytes(content)

    return download


def test_the_first_node_unpacks_and_the_others_find_it_there(tmp_path: Path) -> None:
    folder = fetch_code(SOURCE, tmp_path, giving(archive(train="1")))
    assert fetch_code(SOURCE, tmp_path, giving(b"never asked for")) == folder
    assert [path.name for path in tmp_path.iterdir()] == ["code"]
    assert (folder / "train").read_text() == "1"


@pytest.mark.parametrize("before", ["s3://anybodys-jobs/digits/older.tar.gz", None])
def test_other_code_on_the_volume_is_not_trained_in_its_place(before: str | None, tmp_path: Path) -> None:
    """A file system that somebody brings may have that of another cluster; or of this one, before it was changed."""
    (tmp_path / "code").mkdir()
    if before is not None:
        (tmp_path / "code" / SOURCE_FILE).write_text(before)
    with pytest.raises(CommandFailed, match=f"with the code of {before or 'an unknown source'}; move it away"):
        fetch_code(SOURCE, tmp_path, giving(archive(train="1")))


def test_of_two_nodes_at_once_one_leaves_the_others_alone(tmp_path: Path) -> None:
    def overtaken(bucket: str, key: str, path: str) -> None:
        fetch_code(SOURCE, tmp_path, giving(archive(train="the other's")))
        Path(path).write_bytes(archive(train="mine"))

    assert (fetch_code(SOURCE, tmp_path, overtaken) / "train").read_text() == "the other's"
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


@pytest.mark.parametrize(
    "content",
    [archive(train="1" * 5000)[:-20], b"no archive", archive(**{"../out": "1"})],
    ids=["cut short", "no archive", "a file outside"],  # an archive has the time in it: no two processes' are the same
)
def test_what_cannot_be_unpacked_whole_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CommandFailed):
        fetch_code(SOURCE, tmp_path, giving(content))
    assert list(tmp_path.iterdir()) == []


def test_the_command_runs_where_the_code_is_also_on_a_volume_that_is_mounted_elsewhere(tmp_path: Path) -> None:
    config = NodeConfig(cluster="digits", mount="/data", training_cmd=("python3", "train.py"), code=SOURCE)
    assert working_folder(with_code_fetching_script(config)) == "/data/code"
    moved = with_code_fetching_script(with_volume_at(config, tmp_path))
    assert working_folder(moved) == str(tmp_path / "code")
    assert Path(moved.prepare_script or "").name == "fetch.py"


def test_a_folder_that_the_configuration_names_is_where_the_command_runs(tmp_path: Path) -> None:
    mine = NodeConfig(
        cluster="digits", mount="/data", training_cmd=("python3", "train.py"), working_directory="/data/me"
    )
    assert working_folder(mine) == "/data/me"
    assert working_folder(with_volume_at(mine, tmp_path)) == str(tmp_path / "me")
    assert working_folder(with_code_fetching_script(mine.model_copy(update={"code": SOURCE}))) == "/data/me"
    elsewhere = mine.model_copy(update={"working_directory": "/home/me"})
    assert working_folder(with_volume_at(elsewhere, tmp_path)) == "/home/me"
