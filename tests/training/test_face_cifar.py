"""The CIFAR-10 examples read the real formats and train, on a small made-up set."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.examples import train_cifar10
from dyntrain.training.examples.cifar10_data import CifarError, generate, read_binary, record_iterator
from dyntrain.training.examples.cifar10_net import resnet


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cifar")
    generate(directory, 120, 40)
    return directory


def _run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=True,
    )
    return done.stderr


def test_face_both_formats_hold_the_same_images(data: Path) -> None:
    images, labels = read_binary([data / "test_batch.bin"])
    batch = next(iter(record_iterator(data / "cifar10_val.rec", 40, 0, 1, training=False)))
    mean, deviation = (
        np.array([125.3, 123.0, 113.9])[None, :, None, None],
        np.array([51.6, 50.8, 51.3])[None, :, None, None],
    )
    assert np.abs(batch.data[0].asnumpy() * deviation + mean - images).max() < 0.01
    assert (batch.label[0].asnumpy() == labels).all()


def test_face_two_workers_share_a_record_file_without_overlap(data: Path) -> None:
    """MXNet divides the file by bytes, so the parts may differ by a record; what it fills a batch up with is marked as
    padding.
    """
    parts = []
    for rank in (0, 1):
        batches = record_iterator(data / "cifar10_val.rec", 20, rank, 2, training=False)
        parts.append([image.tobytes() for batch in batches for image in batch.data[0].asnumpy()[: 20 - batch.pad]])
    assert len(set(parts[0])) + len(set(parts[1])) == 40
    assert not set(parts[0]) & set(parts[1])


def test_face_the_module_example_trains_on_recordio(data: Path) -> None:
    files = ["--data-train", str(data / "cifar10_train.rec"), "--data-val", str(data / "cifar10_val.rec")]
    small = ["--num-examples", "120", "--num-layers", "8", "--num-epochs", "4", "--pad-size", "0"]
    schedule = ["--lr-step-epochs", "3", "--top-k", "3", "--batch-size", "20"]
    log = _run("dyntrain.training.examples.train_cifar10", *files, *small, *schedule, "--kv-store", "dist_sync")
    assert "Validation-top_k_accuracy_3" in log
    accuracy = float(log.split("Epoch[3] Train-accuracy=")[1].split()[0])
    assert accuracy > 0.5, "a made-up set of ten patterns is easy"


def test_face_the_gluon_example_trains_on_binary_batches(data: Path) -> None:
    small = ["--layers", "8", "--epochs", "2", "--width", "4", "--batch-size", "20"]
    log = _run("dyntrain.training.examples.cifar10_gluon", "--data", str(data), *small)
    assert "epoch 1: " in log


def test_face_the_module_example_names_mxnet_in_its_import_line_only() -> None:
    """Everything else in it is what a Dynamic Training script says."""
    tree = ast.parse(Path(train_cifar10.__file__).read_text())
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname == "mx"
    ]
    ours = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dyntrain")
    ]
    assert imported == ["dyntrain.training.elastic_mxnet"]
    assert all(module.startswith("dyntrain.training.examples") for module in ours)


def test_face_data_that_is_not_cifar_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(b"x" * 100)
    with pytest.raises(CifarError, match=r"data_batch_1\.bin"):
        read_binary([tmp_path / "data_batch_1.bin"])
    with pytest.raises(ValueError, match="6n") as caught:
        resnet(9)
    assert "9" in str(caught.value)
