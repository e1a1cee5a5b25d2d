"""Writes images into a RecordIO file that MXNet's `ImageRecordIter` can read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import numpy.typing as npt

import mxnet as mx  # isort: skip

from dyntrain.training.worker.state.saved_model import whole_file


def write_records(file: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> None:
    """Write `images`, of shape (n, 3, height, width), into a RecordIO file.

    The file exists under its name only once it is complete.
    """
    with whole_file(str(file)) as partial_path:
        record_writer = mx.recordio.MXRecordIO(partial_path, "w")
        try:
            for image_number, (label, image) in enumerate(zip(labels, images, strict=True)):
                record_writer.write(
                    mx.recordio.pack(mx.recordio.IRHeader(0, float(label), image_number, 0), _encode_png(image))
                )
        finally:
            record_writer.close()


def _encode_png(image: npt.NDArray[np.uint8]) -> bytes:
    """Return an image encoded as PNG (ISO/IEC 15948), in eight-bit RGB without filters."""
    _, height, width = image.shape
    pixel_rows = image.transpose(1, 2, 0).reshape(height, -1)
    filtered_rows = np.concatenate([np.zeros((height, 1), np.uint8), pixel_rows], axis=1).tobytes()

    def make_chunk(chunk_type: bytes, chunk_body: bytes) -> bytes:
        return (
            struct.pack(">I", len(chunk_body))
            + chunk_type
            + chunk_body
            + struct.pack(">I", zlib.crc32(chunk_type + chunk_body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + make_chunk(b"IHDR", header)
        + make_chunk(b"IDAT", zlib.compress(filtered_rows))
        + make_chunk(b"IEND", b"")
    )
