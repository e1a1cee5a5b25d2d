"""The training script of `peer_changes` under torchrun: PyTorch's DDP over gloo, with a checkpoint for restarts.

It imports nothing of the project, as its environment has only torch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

CHECKPOINT_STEPS = 10


class Block(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.skip(x))


def resnet18() -> nn.Module:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = (64, 64, 128, 256, 512)
    for i, (before, after) in enumerate(pairwise(widths)):
        layers += [Block(before, after, 1 if i == 0 else 2), Block(after, after, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1250, 500), nn.Tanh(), nn.Linear(500, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--batch", type=int, default=48, help="over all workers")
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    net = lenet() if given.network == "lenet" else resnet18()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    saved, step = given.folder / "checkpoint.pt", 0
    if saved.exists():
        kept = torch.load(saved)
        net.load_state_dict(kept["net"])
        optimizer.load_state_dict(kept["optimizer"])
        step = kept["step"]
    model = nn.parallel.DistributedDataParallel(net)
    share = max(1, given.batch // world)
    images, labels = torch.randn(share, 3, 32, 32), torch.randint(0, 10, (share,))
    with (given.folder / f"{os.environ['PEER_AGENT']}.jsonl").open("a", buffering=1) as log:
        while True:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step += 1
            log.write(json.dumps({"at": time.time(), "world": world, "pid": os.getpid(), "step": step}) + "\n")
            if rank == 0 and step % CHECKPOINT_STEPS == 0:
                unfinished = saved.with_suffix(".new")
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unfinished)
                unfinished.rename(saved)


if __name__ == "__main__":
    main()
