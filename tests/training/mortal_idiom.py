"""A script of `idioms`, or of `phased`, as a job's training command: one worker dies in the middle of an epoch, once.

    python mortal_idiom.py NAME STEP EXCHANGE FOLDER [NUMBER]

The worker of that number (1) that takes `doom` out of the folder is killed at that exchange of that step; with `all`
each worker that takes `doom-` and its own number. Who comes to the end leaves its weights in the folder; but not who
comes when all loops are over, and has what it began with.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import idioms
import numpy as np
import phased
from dyntrain.training.engine.pslite import PsLite
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.membership.client import read_control_file
from dyntrain.training.worker.membership.coordinated import CoordinatedMembership


class Mortal(CoordinatedMembership):
    moment: tuple[int, int]  # step, exchange in it
    folder: Path
    number = "1"
    trains = False
    _at = (0, 0)

    def intend(self, position: Position, indices: Any) -> None:
        self._at, self.trains = (position.step, 0), True
        super().intend(position, indices)

    def exchange(
        self, keys: Sequence[str], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        doom = self.folder / ("doom" if self.number != "all" else f"doom-{self.kvstore.rank}")
        if self._at == self.moment and self.number in ("all", str(self.kvstore.rank)) and doom.exists():
            doom.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        self._at = (self._at[0], self._at[1] + 1)
        return super().exchange(keys, push, arrays, aside)


def main(name: str, step: str, exchange: str, folder: str, number: str = "1") -> None:
    control = read_control_file()
    assert control is not None
    membership = Mortal(control, PsLite("dist_sync", control.private_ip))
    membership.number, membership.folder = number, Path(folder)
    membership.moment = (int(step), int(exchange))
    script = getattr(phased if hasattr(phased, name) else idioms, name)
    weights = script(ElasticJob(membership))
    if membership.trains:
        np.savez(Path(folder, f"weights-{os.getpid()}.npz"), *weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
