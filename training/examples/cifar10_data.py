"""Reads CIFAR-10 in two formats: its authors' binary batches, and RecordIO as in MXNet's examples.

    python -m dyntrain.training.examples.cifar10_data DIRECTORY --samples 500

The command above creates a small synthetic data set in both formats.

A record of the binary format (https://www.cs.toronto.edu/~kriz/cifar.html) is one label byte, then 3072 bytes of
pixels: all red values, all green values, all blue values, each row by row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import numpy.typing as npt

import mxnet as mx  # isort: skip

from dyntrain.training.examples.cifar10_records import write_records
from dyntrain.training.worker.data.batches import ArrayBatches

TRAINING, VALIDATION = "cifar10_train.rec", "cifar10_val.rec"  # names of the RecordIO files
SIDE, CLASSES = 32, 10  # pixels of an image's side, and number of classes
RECORD_BYTES = 1 + 3 * SIDE * SIDE  # one byte for the label, then the pixels
MEAN, DEVIATION = (125.3, 123.0, 113.9), (51.6, 50.8, 51.3)  # of each channel, over the real training data
Images = npt.NDArray[np.uint8]


class CifarError(ValueError):
    """A data file is missing or is not CIFAR-10. The message names the file and says what to do."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder into which `prepare-data.py` writes the data, and from which `train_cifar10.py` reads the data.

    The folder is `data` on the cluster's volume, or, without a volume, `data` in the current directory.
    """
    return Path(environ.get("EFS_MOUNT", ""), "data")


def read_binary(files: list[Path]) -> tuple[Images, npt.NDArray[np.int32]]:
    """Read files in the binary format.

    Returns images of shape (n, 3, 32, 32) and labels of shape (n,). Raises CifarError.
    """
    if not files:
        raise CifarError("there are no binary batches: unpack cifar-10-binary.tar.gz and give its directory")
    return parse_binary((str(batch_file), batch_file.read_bytes()) for batch_file in files)


def parse_binary(files: Iterable[tuple[str, bytes]]) -> tuple[Images, npt.NDArray[np.int32]]:
    """Parse files in the binary format like `read_binary`, from pairs of (file name, content)."""
    record_arrays = []
    for file_name, content in files:
        raw_bytes = np.frombuffer(content, np.uint8)
        if not raw_bytes.size or raw_bytes.size % RECORD_BYTES:
            raise CifarError(
                f"{file_name} holds {raw_bytes.size} bytes, which is no multiple of {RECORD_BYTES}: it is damaged "
                "or no binary batch"
            )
        record_arrays.append(raw_bytes.reshape(-1, RECORD_BYTES))
    records = np.concatenate(record_arrays)
    if records[:, 0].max() >= CLASSES:
        raise CifarError(f"{file_name}, or an earlier file, is no CIFAR-10 batch: it has a label {records[:, 0].max()}")
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0].astype(np.int32)


def load_binary(directory: Path) -> tuple[ArrayBatches, ArrayBatches]:
    """Load training and validation data from binary batches, with standardised float32 pixels."""
    return _load_batches(directory, "data_batch_*.bin"), _load_batches(directory, "test_batch.bin")


def _load_batches(directory: Path, files: str) -> ArrayBatches:
    images, labels = read_binary(sorted(directory.glob(files)))
    return ArrayBatches(_standardise(images), labels)


def _standardise(images: Images) -> npt.NDArray[np.float32]:
    mean, deviation = (
        np.array(channel_values, np.float32)[None, :, None, None] for channel_values in (MEAN, DEVIATION)
    )
    return np.asarray((images.astype(np.float32) - mean) / deviation)


def record_iterator(
    file: Path, batch: int, rank: int, workers: int, training: bool, threads: int = 1, padding: int = 0
) -> Any:
    """Iterate over one worker's part of a RecordIO file.

    Training images are shuffled and randomly mirrored. With `padding`, training images are padded and then randomly
    cropped.

    Raises CifarError.
    """
    if not file.is_file():
        raise CifarError(f"{file} does not exist: run prepare-data.py")
    crop_options = {"pad": padding, "rand_crop": True} if training and padding else {}
    return mx.io.ImageRecordIter(
        path_imgrec=str(file),
        data_shape=(3, SIDE, SIDE),
        batch_size=batch,
        shuffle=training,
        rand_mirror=training,
        **dict(zip(("mean_r", "mean_g", "mean_b"), MEAN, strict=True)),
        **dict(zip(("std_r", "std_g", "std_b"), DEVIATION, strict=True)),
        part_index=rank,
        num_parts=workers,
        preprocess_threads=threads,
        **crop_options,
    )


def generate(directory: Path, samples: int, validation: int, seed: int = 0) -> None:
    """Create a synthetic data set in both formats.

    Each class is a pattern with noise, so a network can learn the classes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    patterns = generator.integers(60, 196, (CLASSES, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    for binary_name, record_name, image_count in (
        ("data_batch_1.bin", TRAINING, samples),
        ("test_batch.bin", VALIDATION, validation),
    ):
        labels = (np.arange(image_count) % CLASSES).astype(np.uint8)
        images = np.clip(patterns[labels] + generator.normal(0, 25, (image_count, 3, SIDE, SIDE)), 0, 255).astype(
            np.uint8
        )
        (directory / binary_name).write_bytes(
            np.concatenate([labels[:, None], images.reshape(image_count, -1)], axis=1).tobytes()
        )
        write_records(directory / record_name, images, labels)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dyntrain.training.examples.cifar10_data",
        description="Create a small data set in the formats of CIFAR-10.",
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--validation", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    generate(args.directory, args.samples, args.validation, args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
