"""The demo cluster's prepare-data script, which writes scikit-learn's handwritten digits to the script's own folder on
the shared volume.

`stack.write_prepare_script` copies this file to the volume as `prepare-data.py`. Every node runs the script: the first
node writes the digits, and later nodes find the written file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

DATA_FILE = "digits.npz"
SAMPLE_COUNT = 1797


def is_complete(path: Path) -> bool:
    """Whether the file exists and contains all samples of the digits."""
    try:
        with np.load(path, allow_pickle=False) as digits:
            return bool(digits["images"].shape == (SAMPLE_COUNT, 64) and digits["labels"].shape == (SAMPLE_COUNT,))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return False


def write_digits(path: Path) -> None:
    """Write the digits to a temporary file, and rename this file to `path`. A concurrent reader finds no file or a
    complete file, and two concurrent writers leave one complete file.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    descriptor, temporary_path = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, images=images.astype(np.float32), labels=labels.astype(np.int32))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary_path, 0o644)
        os.replace(temporary_path, path)
    except BaseException:
        os.unlink(temporary_path)
        raise


def main() -> int:
    path = Path(__file__).resolve().parent / DATA_FILE
    if is_complete(path):
        print(f"prepare-data: {path} exists with {SAMPLE_COUNT} samples")
        return 0
    write_digits(path)
    print(f"prepare-data: wrote {path} with {SAMPLE_COUNT} samples, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
