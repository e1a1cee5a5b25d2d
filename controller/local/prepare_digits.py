"""The demo cluster's prepare-data script, which writes scikit-learn's handwritten digits to the shared volume, into the
script's own folder.

`stack.write_prepare_script` copies this file to the volume as `prepare-data.py`. Every node runs the script: the first
node writes the digits, and the other nodes find the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

DATA_FILE = "digits.npz"
SAMPLES = 1797


def is_whole(path: Path) -> bool:
    """Whether the file exists with all samples in it."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return bool(data["images"].shape == (SAMPLES, 64) and data["labels"].shape == (SAMPLES,))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return False


def build(path: Path) -> None:
    """Write a temporary file and rename it. A concurrent reader finds no file or the whole file, and two writers leave
    one whole file.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, images=images.astype(np.float32), labels=labels.astype(np.int32))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main() -> int:
    path = Path(__file__).resolve().parent / DATA_FILE
    if is_whole(path):
        print(f"prepare-data: {path} exists with {SAMPLES} samples")
        return 0
    build(path)
    print(f"prepare-data: wrote {path} with {SAMPLES} samples, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
