"""A rank's loop of PyTorch: an IterableDataset that reads the FIFO of each epoch, in the process of a DataLoader.

rank, epochs, where channels are, where to write which labels each epoch had. With a number of ranks and a checkpoint's
state besides, it goes on with them as CHANNELS.md has it.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tfrecord import example_pb2

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "training"))

from feed_reader import gone_on


def records_of(path: Path) -> Iterator[bytes]:
    """Records of a FIFO. The reader of `tfrecord` seeks, which a FIFO refuses."""
    with path.open("rb") as file:
        while header := file.read(12):
            record = file.read(struct.unpack("<Q", header[:8])[0])
            file.read(4)
            yield record


class Records(torch.utils.data.IterableDataset):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for record in records_of(self.path):
            feature = example_pb2.Example.FromString(record).features.feature
            data = torch.frombuffer(bytearray(feature["data"].bytes_list.value[0]), dtype=torch.float64)
            yield data, feature["labels"].int64_list.value[0]


def main() -> None:
    rank, epochs, root, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    first = 0
    if len(sys.argv) > 5:
        first = gone_on(f"train_{rank}", int(sys.argv[5]), json.loads(sys.argv[6]), root)["epoch"]
    seen = []
    for epoch in range(first, first + epochs):
        labels: list[int] = []
        for data, batch in torch.utils.data.DataLoader(Records(root / f"train_{rank}_{epoch}"), 64, num_workers=1):
            assert torch.equal(data[:, 0].long(), batch)
            labels += batch.tolist()
        seen.append(labels)
    out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
