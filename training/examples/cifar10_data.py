"""CIFAR-10 in its two usual formats: the binary batches of its authors, and RecordIO as MXNet's examples use it.

    python -m training.examples.cifar10_data DIRECTORY --samples 500      a small made-up set in both formats, for trying things out

Binary (https://www.cs.toronto.edu/~kriz/cifar.html): records of one label byte and 3072 bytes of pixels, red then green then blue, row by row.
"""

from __future__ import annotations

import argparse
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from training.batches import ArrayBatches

SIDE, CLASSES = 32, 10
RECORD = 1 + 3 * SIDE * SIDE
MEAN, DEVIATION = (125.3, 123.0, 113.9), (51.6, 50.8, 51.3)  # of each channel over the real training set
Images = npt.NDArray[np.uint8]


class CifarError(ValueError):
    """The data is not there, or is not CIFAR-10; says which file and what to do."""


def read_binary(files: list[Path]) -> tuple[Images, npt.NDArray[np.int32]]:
    """(images of shape (n, 3, 32, 32), labels of shape (n,)). Raises CifarError."""
    if not files:
        raise CifarError("no binary batches there: unpack cifar-10-binary.tar.gz and name its directory")
    parts = []
    for file in files:
        raw = np.fromfile(file, np.uint8)
        if not raw.size or raw.size % RECORD:
            raise CifarError(f"{file} holds {raw.size} bytes, which is no multiple of {RECORD}: it is damaged or no binary batch")
        parts.append(raw.reshape(-1, RECORD))
    rows = np.concatenate(parts)
    if rows[:, 0].max() >= CLASSES:
        raise CifarError(f"{files[0].parent}: label {rows[:, 0].max()} is not of CIFAR-10")
    return rows[:, 1:].reshape(-1, 3, SIDE, SIDE), rows[:, 0].astype(np.int32)


def load_binary(directory: Path) -> tuple[ArrayBatches, ArrayBatches]:
    """(training, validation), pixels standardised to float32."""
    train, test = read_binary(sorted(directory.glob("data_batch_*.bin"))), read_binary(sorted(directory.glob("test_batch.bin")))
    return tuple(ArrayBatches(_standard(images), labels) for images, labels in (train, test))  # type: ignore[return-value]


def _standard(images: Images) -> npt.NDArray[np.float32]:
    mean, deviation = (np.array(values, np.float32)[None, :, None, None] for values in (MEAN, DEVIATION))
    return np.asarray((images.astype(np.float32) - mean) / deviation)


def record_iterator(file: Path, batch: int, rank: int, workers: int, training: bool) -> Any:
    """One worker's part of a RecordIO file. Raises CifarError."""
    if not file.is_file():
        raise CifarError(f"{file} is not there: name the directory of cifar10_train.rec and cifar10_val.rec")
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
        preprocess_threads=1,
    )


def generate(directory: Path, samples: int, validation: int, seed: int = 0) -> None:
    """A made-up set that can be learned: every class is a pattern of its own under noise. Both formats hold the same images."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    patterns = rng.integers(60, 196, (CLASSES, 3, 4, 4)).repeat(8, axis=2).repeat(8, axis=3)
    for binary, records, count in (("data_batch_1.bin", "cifar10_train.rec", samples), ("test_batch.bin", "cifar10_val.rec", validation)):
        labels = (np.arange(count) % CLASSES).astype(np.uint8)
        images = np.clip(patterns[labels] + rng.normal(0, 25, (count, 3, SIDE, SIDE)), 0, 255).astype(np.uint8)
        (directory / binary).write_bytes(np.concatenate([labels[:, None], images.reshape(count, -1)], axis=1).tobytes())
        writer = mx.recordio.MXRecordIO(str(directory / records), "w")
        for i, (label, image) in enumerate(zip(labels, images, strict=True)):
            writer.write(mx.recordio.pack(mx.recordio.IRHeader(0, float(label), i, 0), _png(image)))
        writer.close()


def _png(image: Images) -> bytes:
    """Eight-bit RGB without filters (PNG, ISO/IEC 15948): lossless, so that both formats hold the same pixels."""
    rows = np.concatenate([np.zeros((SIDE, 1), np.uint8), image.transpose(1, 2, 0).reshape(SIDE, -1)], axis=1).tobytes()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.examples.cifar10_data", description="Make a small set in the formats of CIFAR-10.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--validation", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    generate(args.directory, args.samples, args.validation, args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
