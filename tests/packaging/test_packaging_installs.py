"""What a person installs, and that it is enough for what it is for: each install in a fresh environment, from a folder
that is not the checkout.
"""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto_server import moto_server
from packaging_environment import ROOT, Distributions, Environment, uv

Fresh = Callable[..., Environment]
TRAIN = """
from dyntrain import ElasticJob
import mxnet as mx
from mxnet import autograd, gluon
job = ElasticJob.join()
net = gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
data = gluon.data.ArrayDataset(mx.nd.ones((8, 2)), mx.nd.ones((8,)))
for epoch in job.epochs(2, samples=8, global_batch=4):
    for x, y in epoch.batches(data):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(x), y)
        loss.backward()
        trainer.step(4)
print("trained by", __import__("dyntrain").__version__)
"""
LAUNCH = ("launch", "-n", "1", "--launcher", "local", "--env", "OMP_NUM_THREADS:1")
EVENT = {
    "id": "e1",
    "source": "aws.ec2",
    "detail-type": "EC2 Instance State-change Notification",
    "time": "2026-01-01T00:00:00Z",
    "account": "444455556666",
    "resources": ["arn:aws:ec2:eu-north-1:444455556666:instance/i-0aaaaaaaaaaaaaaa1"],
    "detail": {"instance-id": "i-0aaaaaaaaaaaaaaa1", "state": "running"},
}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_the_wheel_installs_one_name_and_every_module(distributions: Distributions) -> None:
    names = set(contents(distributions.wheel))
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"dyntrain"}
    modules = {
        f"dyntrain/{path.relative_to(ROOT).as_posix()}"
        for folder in ("controller", "node_bootstrap", "training")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent != ROOT / "training" / "face"
    }
    assert modules <= names
    assert {"dyntrain/__init__.py", "dyntrain/__main__.py", "dyntrain/py.typed"} <= names


def test_the_wheel_has_the_documents_that_its_messages_name_and_no_others(distributions: Distributions) -> None:
    pages = {f"training/rules/{page.name}" for page in (ROOT / "training" / "rules").glob("*.md")}
    named = {"controller/DEPLOY.md", "training/GUIDE.md", "training/SCALING.md"}
    there = {name for name in contents(distributions.wheel) if name.endswith(".md")}
    assert there == {f"dyntrain/{name}" for name in pages | named}


def test_the_sdist_builds_the_same_wheel_and_has_what_tests_it(distributions: Distributions) -> None:
    assert contents(distributions.wheel) == contents(distributions.direct)
    with tarfile.open(distributions.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "uv.lock", "app.py", ".chalice/package.py", "tests/conftest.py"} <= names
    assert {"OPERATIONS.md", "controller/CREATE.md", "training/LAUNCH.md"} <= names


@pytest.mark.parametrize(("version", "platform"), [("3.14", "windows"), ("3.13", "aarch64-apple-darwin")])
def test_the_command_line_needs_nothing_that_must_be_compiled(
    distributions: Distributions, tmp_path: Path, version: str, platform: str
) -> None:
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"dyntrain @ {distributions.wheel.as_uri()}\n")
    options = ("--python-version", version, "--python-platform", platform, "--only-binary", ":all:", "--no-header")
    compiled = tmp_path / "found.txt"
    uv("pip", "compile", wanted, *options, "--output-file", compiled)
    brought = {line.partition("==")[0] for line in compiled.read_text().splitlines() if "==" in line}
    assert {"boto3", "pydantic", "click", "rich"} <= brought
    assert not brought & {"mxnet", "numpy", "chalice", "cryptography", "websockets", "moto"}


class TestTheCommandLineAlone:
    @pytest.mark.parametrize(
        "command", [("dyntrain", "--help"), ("dyntrain", "-h"), ("python", "-m", "dyntrain", "-h")]
    )
    def test_it_lists_its_commands(self, fresh: Fresh, tmp_path: Path, command: tuple[str, ...]) -> None:
        done = fresh().run(*command, here=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert {"status", "explain", "events", "cluster", "base", "pool", "replay", "launch", "local"} <= {
            line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")
        }

    @pytest.mark.parametrize("command", ["base", "cluster", "doctor", "events", "explain", "local", "pool"])
    def test_each_command_explains_itself(self, fresh: Fresh, tmp_path: Path, command: str) -> None:
        done = fresh().run("dyntrain", command, "-h", here=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Usage: dyntrain {command}")

    def test_it_says_its_version(self, fresh: Fresh, tmp_path: Path) -> None:
        assert fresh().run("dyntrain", "--version", here=tmp_path).stdout == "dyntrain 0.1.0\n"
        program = "import dyntrain, sys; print(dyntrain.__version__, 'boto3' in sys.modules)"
        assert fresh().run("python", "-c", program, here=tmp_path).stdout == "0.1.0 False\n"

    def test_recorded_events_go_through_the_rules(self, fresh: Fresh, tmp_path: Path) -> None:
        (tmp_path / "events.json").write_text(json.dumps([EVENT]))
        done = fresh().run("dyntrain", "replay", "events.json", here=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "on_instance_state" in done.stdout

    def test_it_makes_the_template_of_a_cluster(self, fresh: Fresh, tmp_path: Path) -> None:
        done = fresh().run("dyntrain", "cluster", "template", here=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "AWSTemplateFormatVersion" in done.stdout

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (("status",), "no cluster is registered"),
            (("cluster", "list"), ""),
        ],
    )
    def test_it_asks_aws(
        self, fresh: Fresh, tmp_path: Path, aws: dict[str, str], command: tuple[str, ...], message: str
    ) -> None:
        done = fresh().run("dyntrain", *command, here=tmp_path, **aws)
        assert done.returncode == 0, done.stderr
        assert message in done.stdout

    @pytest.mark.parametrize(
        ("command", "extras", "code"),
        [
            (("dyntrain", "local", "up"), "dyntrain[local,cpu]", 1),
            (("dyntrain", "report", "demo", "--png", "x.png"), "dyntrain[picture]", 1),
            (("dyntrain", "tensorboard", "demo"), "dyntrain[tensorboard]", 1),
            (("dyntrain", *LAUNCH, "python", "train.py"), "dyntrain[node,cpu]", 1),
            (("python", "-m", "dyntrain.training.launch", *LAUNCH[1:], "x"), "dyntrain[node,cpu]", 1),
            (("python", "-m", "dyntrain.training.coordinator"), "dyntrain[node]", 78),
            (("python", "-m", "dyntrain.node_bootstrap", "run", "--root", "."), "dyntrain[node]", 78),
            (("python", "-m", "dyntrain.node_bootstrap", "plan", "--root", "."), "dyntrain[node]", 78),
        ],
    )
    def test_what_needs_more_says_in_one_line_which_extra(
        self, fresh: Fresh, tmp_path: Path, command: tuple[str, ...], extras: str, code: int
    ) -> None:
        done = fresh().run(*command, here=tmp_path)
        assert done.returncode == code
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert f'pip install "{extras}"' in done.stderr

    @pytest.mark.parametrize(
        "line",
        [
            "from dyntrain import ElasticJob",
            "from dyntrain.training.job import ElasticJob",
            "import dyntrain.training.elastic_mxnet",
        ],
    )
    def test_a_script_is_told_which_extra_it_needs(self, fresh: Fresh, tmp_path: Path, line: str) -> None:
        done = fresh().run("python", "-c", line, here=tmp_path)
        assert 'pip install "dyntrain[node,cpu]"' in done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, str]]:
    with moto_server() as endpoint:
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "ap-southeast-2",
            "DYNTRAIN_TABLE": "facts",
        }


def test_a_node_without_mxnet_is_told_to_choose_a_build(fresh: Fresh, tmp_path: Path) -> None:
    done = fresh("node").run("python", "-c", "from dyntrain import ElasticJob", here=tmp_path)
    message = done.stderr.splitlines()[-1]
    assert 'pip install "dyntrain[cpu]"' in message
    assert "mxnet-cu112==1.9.1" in message


def test_a_node_trains_alone_and_launched(fresh: Fresh, tmp_path: Path) -> None:
    node = fresh("node,cpu")
    (tmp_path / "train.py").write_text(TRAIN)
    alone = node.run("python", "train.py", here=tmp_path)
    assert alone.stdout == "trained by 0.1.0\n", alone.stderr
    launched = node.run("dyntrain", *LAUNCH, "--events", "events.jsonl", "python", "train.py", here=tmp_path)
    assert launched.returncode == 0, launched.stderr
    assert '"finished"' in (tmp_path / "events.jsonl").read_text()


def test_the_controller_is_packaged_from_the_sdist(fresh: Fresh, distributions: Distributions, tmp_path: Path) -> None:
    with tarfile.open(distributions.sdist) as archive:
        archive.extractall(tmp_path)  # noqa: S202  # our own; Python 3.11.2 knows no filter
    source = next(tmp_path.iterdir())
    done = fresh("controller").run(
        "python", source / ".chalice" / "package.py", "--out", tmp_path / "out", here=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "deployment.zip").stat().st_size > 0
