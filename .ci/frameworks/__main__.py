"""Channels read by real frameworks: PipeModeDataset of AWS's extension of TensorFlow, and PyTorch's DataLoader.

    python .ci/frameworks

They are installed below build/tools, with the last Python that the extension has a wheel for; S3 is moto. Exit code 0:
each record came once an epoch; 1: it did not; 2: there is no such Python, or no registry, which a line says.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "tools" / "frameworks"
INSIDE = PLACE / "bin" / "python"
UV = ROOT / "build" / "tools" / "uv" / "bin" / "uv"
PYTHON = "3.10"
PACKAGES = ("tensorflow-cpu==2.14.1", "sagemaker-tensorflow==2.14.0.1.20.0", "tfrecord==1.14.6")
TORCH = "torch==1.12.1"  # the last that has all it needs in its wheel; later ones bring gigabytes for GPUs
SECONDS = 900
OBJECTS, RECORDS = 8, 150
WRITE = """
import struct, sys, tfrecord
for number in range(int(sys.argv[2])):
    writer = tfrecord.TFRecordWriter(f"{sys.argv[1]}/{number}.tfrecord")
    for label in range(number * int(sys.argv[3]), (number + 1) * int(sys.argv[3])):
        data = struct.pack("<d", label) + bytes(8 * 500)
        writer.write({"data": (data, "byte"), "labels": (label, "int")})
    writer.close()
"""


def main() -> int:
    if lacking := install():
        sys.stdout.write(f"not run: {lacking}\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        server = ThreadedMotoServer("127.0.0.1", 0)
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        server.start()
        try:
            _, port = server.get_host_and_port()
            address = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
            os.environ.update(address, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")  # noqa: S106
            fill(place / "objects")
            problems = {
                "PipeModeDataset": read(place / "tensorflow", "tensorflow_loop.py", 2),
                "DataLoader": read(place / "torch", "torch_loop.py", 2),
                "PipeModeDataset, of two ranks that are four": gone_on(place / "tensorflow", "tensorflow_loop.py"),
                "DataLoader, of two ranks that are four": gone_on(place / "torch", "torch_loop.py"),
            }
        finally:
            server.stop()
    for name, problem in problems.items():
        sys.stdout.write(f"{name}: {problem or 'each record once an epoch'}\n")
    passed = sum(not problem for problem in problems.values())
    sys.stdout.write(f"=== {passed} passed, {len(problems) - passed} failed ===\n")
    return 1 if any(problems.values()) else 0


def install() -> str:
    """What is lacking; "" for nothing."""
    own = sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"{PYTHON}.*/bin/python")))
    python = own[-1] if own else shutil.which(f"python{PYTHON}")
    if python is None:
        return f"Python {PYTHON} is not on this machine"
    mark = PLACE / "packages"
    if mark.is_file() and mark.read_text() == "\n".join((*PACKAGES, TORCH)):
        return ""
    install = [str(UV), "pip", "install", "--quiet", "--python", str(INSIDE)]
    for command in (
        [str(UV), "venv", "--quiet", "--clear", "--python", python, str(PLACE)],
        [*install, *PACKAGES],
        [*install, "--no-deps", TORCH],
    ):
        done = ran(command)
        if done.returncode:
            return f"{' '.join(command[1:3])}: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
    mark.write_text("\n".join((*PACKAGES, TORCH)))
    return ""


def fill(folder: Path) -> None:
    """By tfrecord's own writer."""
    folder.mkdir()
    written = ran([str(INSIDE), "-c", WRITE, str(folder), str(OBJECTS), str(RECORDS)])
    assert written.returncode == 0, written.stderr
    s3 = boto3.session.Session().client("s3")
    s3.create_bucket(Bucket="data")
    for path in folder.iterdir():
        s3.upload_file(str(path), "data", f"train/{path.name}")


def read(place: Path, program: str, epochs: int) -> str:
    """What is wrong; "" for nothing."""
    seen = run(place, program, 2, [str(epochs)])
    if isinstance(seen, str):
        return seen
    for epoch in range(epochs):
        if problem := audited([label for rank in seen for label in rank[epoch]], epoch):
            return problem
    return ""


def gone_on(place: Path, program: str) -> str:
    """Two ranks have trained on some records of an epoch; four read the rest."""
    counts = [333, 91]
    whole = run(place / "two", program, 2, ["1"], "2", json.dumps({"epoch": 3}))
    if isinstance(whole, str):
        return whole
    rest = run(place / "four", program, 4, ["1"], "4", json.dumps({"epoch": 3, "records": [counts]}))
    if isinstance(rest, str):
        return rest
    counted = [label for (labels,), count in zip(whole, counts, strict=True) for label in labels[:count]]
    return audited([*counted, *(label for (labels,) in rest for label in labels)], 3)


def audited(labels: Sequence[int], epoch: int) -> str:
    if sorted(labels) == list(range(OBJECTS * RECORDS)):
        return ""
    return f"epoch {epoch} had {len(labels)} records, {len(set(labels))} different ones, of {OBJECTS * RECORDS}"


def run(place: Path, program: str, ranks: int, more: Sequence[str], *last: str) -> list[list[list[int]]] | str:
    """Of each rank what each epoch had, or what is wrong."""
    root = place / "ml" / "input" / "data"
    place.mkdir(parents=True)
    file = ROOT / ".ci" / "frameworks" / program
    words = [
        [str(INSIDE), str(file), str(rank), *more, str(root), str(place / f"{rank}.json")] for rank in range(ranks)
    ]
    one = "import subprocess, sys, json; all = [subprocess.Popen(words) for words in json.loads(sys.argv[1])]; "
    start = [sys.executable, "-c", one + "sys.exit(max(one.wait() for one in all))"]
    feed = [sys.executable, "-m", "dyntrain.training.feed", "--root", str(root), "--workers-per-node", str(ranks)]
    channel = ["--channel", "train=s3://data/train/,shuffle=234"]
    done = ran([*feed, *channel, "--", *start, json.dumps([[*one, *last] for one in words])])
    if done.returncode:
        return f"exit code {done.returncode}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}"
    return [json.loads((place / f"{rank}.json").read_text()) for rank in range(ranks)]


def ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS, stdin=subprocess.DEVNULL
    )


if __name__ == "__main__":
    sys.exit(main())
