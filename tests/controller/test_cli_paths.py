"""Addresses where a folder or file of this machine is wanted.

What would break for a user: commits, curves or a page in a folder named `s3:`, from a command that ends well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.folders import not_local_problem
from dyntrain.controller.jobs.submission.code import source_of


@pytest.mark.parametrize(
    "typed",
    [
        ["report", "x.jsonl", "--html", "s3://data/x.html"],
        ["report", "x.jsonl", "--png", "gs://data/x.png"],
        ["tensorboard", "x.jsonl", "--logdir", "gs://data/runs", "--no-serve"],
        ["tensorboard", "x.jsonl", "--logdir", "S3://data/runs", "--no-serve"],
        ["tensorboard", "x.jsonl", "--logdir", "s3:/data/runs", "--no-serve"],
        ["local", "up", "--directory", "s3://data/up"],
        ["local", "chaos", "--directory", "hdfs://nn/up"],
    ],
    ids=" ".join,
)
def test_an_address_is_refused_and_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text("")
    done = CliRunner().invoke(main, typed)
    assert done.exit_code in (1, 2)
    assert "an address" in done.output or "no folder and no s3://" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_the_code_of_a_job_is_a_folder_or_in_s3() -> None:
    assert source_of("s3://data/code.tar.gz") == ("data", "code.tar.gz")
    assert source_of("./code") is None
    with pytest.raises(GiveUp, match="no folder and no s3://BUCKET/KEY"):
        source_of("gs://data/code")


def test_a_drive_and_a_time_are_folders() -> None:
    assert [not_local_problem(path) for path in ("C:/data", "runs/12:30", "a:b", Path("data"))] == [""] * 4
