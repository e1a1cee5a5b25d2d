"""Data of a job: what is refused before machines are rented, and what travels to them.

What would break for a user: a job that starts and finds no data, on an image with an old Python or without packages.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.cli.commands.job.data import channel_variables, check_channels, common_folder
from dyntrain.controller.contract.errors import GiveUp, Misconfigured
from dyntrain.controller.contract.job_files import SUCCEEDED, Exit, plan_key
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, check_elastic, parameters_of
from dyntrain.controller.jobs.submission.feeding import FEED_MODULES, START_SCRIPT, command_of, zip_feed
from dyntrain.controller.jobs.submission.ports import Hardware
from dyntrain.controller.jobs.submission.submit import resubmit
from dyntrain.controller.local.pace import patient
from job_world import BUCKET, World, request

CHANNELS = ("train=s3://data/sets/train/,shuffle=1", "val=s3://data/sets/val/,mode=file")


@pytest.mark.parametrize("name", FEED_MODULES)
def test_the_feed_is_python_as_old_as_amazon_linux_has_and_imports_nothing_but_itself_and_boto(name: str) -> None:
    text = files("dyntrain").joinpath(f"training/feed/{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    with zipfile.ZipFile(io.BytesIO(zip_feed())) as zipped:
        there = {entry.removesuffix(".py").replace("/", ".") for entry in zipped.namelist()}
    ours = {module for module in imported if module.startswith("dyntrain")} - {"dyntrain.training.feed"}
    assert ours <= there
    others = {module.partition(".")[0] for module in imported - ours} - {"dyntrain"}
    assert others <= sys.stdlib_module_names | {"boto3", "botocore"}


@pytest.mark.parametrize("name", FEED_MODULES)
def test_no_module_of_the_feed_joins_types_as_it_is_imported(name: str) -> None:
    """Python 3.9 cannot: a name for `bytes | memoryview` kept the feed from starting there."""
    text = files("dyntrain").joinpath(f"training/feed/{name}.py").read_text(encoding="utf-8")
    named = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    joined = [one for node in named for one in ast.walk(node.value) if isinstance(one, ast.BinOp)]
    types = [one for one in joined if isinstance(one.op, ast.BitOr) and not isinstance(one.left, ast.Attribute)]
    assert not [ast.unparse(one) for one in types]


def test_the_feed_runs_as_the_plan_has_it(tmp_path: Path) -> None:
    """By the shell of any image; here without a channel, which wants no S3."""
    words = command_of(request(channels=CHANNELS), "us-east-1")
    assert words[3:]
    assert "--channel" in words
    start = [*words[:4], "--root", "in/data", "--", "sh", "-c", "ls in; exit 7"]
    done = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=patient(60))
    assert (done.returncode, done.stdout) == (7, "config\ndata\n"), done.stderr


def test_a_job_without_channels_runs_as_it_is_and_one_with_them_below_the_feed() -> None:
    assert command_of(request(), "us-east-1") == ["python3", "train.py"]
    words = command_of(request(channels=CHANNELS, workers_per_node=4, data_root="/data"), "eu-west-1")
    assert words[:3] == ["/bin/sh", "-c", START_SCRIPT]
    assert words[4:] == [
        "--channel", CHANNELS[0], "--channel", CHANNELS[1], "--root", "/data", "--workers-per-node", "4",
        "--region", "eu-west-1", "--", "python3", "train.py",
    ]  # fmt: skip
    assert len(words[3]) < 100_000, "Linux takes 131,072 bytes as one argument"


def test_a_job_that_is_launched_again_has_its_channels() -> None:
    world = World()
    world.submit(request(channels=CHANNELS))
    first = json.loads(world.objects[BUCKET, plan_key("mnist", world.record().run)])
    world.settles(Exit(SUCCEEDED, 0, 0, "done", world.now))
    for rank in (0, 1):
        world.end(rank)
    world.resync()
    resubmit(world.ports, world, "mnist", lambda text: None)
    second = json.loads(world.objects[BUCKET, plan_key("mnist", world.record().run)])
    assert second["command"] == first["command"]
    assert CHANNELS[0] in second["command"]


def test_what_is_wrong_is_said_before_anything_is_made() -> None:
    assert check_channels(CHANNELS, elastic=False) == []
    many = [f"c_{number}=s3://data/x/" for number in range(21)]
    assert "SageMaker accepts at most 20" in check_channels(many, elastic=False)[0]
    for words, elastic, message in (
        (["train=data"], False, "--channel: data is no s3://BUCKET/PREFIX"),
        ([CHANNELS[0]], True, "--channel train: workers of an elastic job read data by `job.channel`"),
        (["a=s3://x1x/a/", "b=s3://y1y/b/"], True, "one folder of one bucket"),
        (["a=s3://data/a/", "b=s3://data/b/"], True, "one folder of one bucket"),
    ):
        with pytest.raises(GiveUp, match=message):
            check_channels(words, elastic=elastic)


def test_a_cluster_is_given_its_channels_and_the_right_to_read_them() -> None:
    words = ["train=s3://data/sets/a/train", "val=s3://data/sets/a/val/", "few=s3://data/sets/few.manifest,manifest"]
    assert common_folder(words) == ("data", "sets")
    assert common_folder(words[:2]) == ("data", "sets/a")
    assert common_folder(words[:1]) == ("data", "sets/a/train")
    assert channel_variables(words) == {
        "DYNTRAIN_CHANNEL_TRAIN": "s3://data/sets/a/train/",
        "DYNTRAIN_CHANNEL_VAL": "s3://data/sets/a/val/",
        "DYNTRAIN_CHANNEL_FEW": "s3://data/sets/few.manifest,manifest",
    }
    parameters: dict[str, Any] = dict(
        parameters_of(request(), ClusterSettings("prod", "s3://p/w.whl", "k", common_folder(words)), HARDWARE)
    )
    assert (parameters["DataBucket"], parameters["DataPrefix"]) == ("data", "sets")
    assert "DataBucket" not in parameters_of(request(), ClusterSettings("prod", "s3://p/w.whl", "k"), HARDWARE)
    with pytest.raises(
        Misconfigured, match=r"--data-root does not go with --elastic: its workers read S3 by job.channel"
    ):
        check_elastic(request(), ["data_root"])


HARDWARE = Hardware(x86=True, nvidia=False)
