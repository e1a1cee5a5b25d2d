"""A rank's loop as programs for SageMaker have it: PipeModeDataset, of AWS's own extension of TensorFlow.

rank, epochs, where channels are, where to write which labels each epoch had. With a number of ranks and a checkpoint's
state besides, it goes on with them as CHANNELS.md has it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf
from sagemaker_tensorflow import PipeModeDataset

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "training"))

from feed_reader import gone_on

FEATURES = {"data": tf.io.FixedLenFeature([], tf.string), "labels": tf.io.FixedLenFeature([], tf.int64)}


def parse(record: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    parsed = tf.io.parse_single_example(record, FEATURES)
    return {"data": tf.io.decode_raw(parsed["data"], tf.float64)}, parsed["labels"]


def main() -> None:
    rank, epochs, root, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    name, state = f"train_{rank}", out.parent / f"state-{rank}"
    state.mkdir()
    if len(sys.argv) > 5:
        first = gone_on(name, int(sys.argv[5]), json.loads(sys.argv[6]), root)["epoch"]
        (state / f".{name}-pipe_mode-state").write_text(str(first))
    dataset = PipeModeDataset(
        channel=name,
        record_format="TFRecord",
        pipe_dir=str(root),
        config_dir=str(root.parent / "config"),
        state_dir=str(state),
    )
    dataset = dataset.map(parse).batch(64).prefetch(10)
    seen = []
    for _ in range(epochs):
        labels: list[int] = []
        for features, batch in dataset:
            labels += [int(label) for label in batch]
            assert all(int(row[0]) == int(label) for row, label in zip(features["data"], batch, strict=True))
        seen.append(labels)
    out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
