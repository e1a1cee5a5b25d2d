"""What `dyntrain check` tells the processes of a script, in a file that a variable names, and the files in which they
answer. A process without the variable is in no trial.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

VARIABLE = "DYNTRAIN_TRIAL"
SUFFIX = ".npz"
Moment = Literal["before", "after"]  # the worker's gradients are summed


class Kill(BaseModel):
    """The worker of this rank, or the last one where there are fewer, kills itself within the step, once."""

    model_config = ConfigDict(frozen=True)

    step: int
    rank: int
    moment: Moment


class Order(BaseModel):
    """What one run of the script is to do. `steps`: of each loop, at most; so are `epochs` and `samples` of an epoch
    (None: four batches and what the last one has). `nudge`: the weights begin one rounding apart. `other_draws`: the
    generators are those of another worker. `rules`: nothing is compared, so that they may try the first batch's parts.
    `norms`: a file with the constants by which BatchNorm is held still; None: they are taken from the first batch.
    `held`: steps after which each worker waits for a file (`gate`).
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    steps: int
    epochs: int | None = None
    samples: int | None = None
    nudge: bool = False
    seed: int = 0
    other_draws: bool = False
    rules: bool = False
    norms: Path | None = None
    held: tuple[int, ...] = ()
    kills: tuple[Kill, ...] = ()

    @property
    def steps_folder(self) -> Path:
        return self.folder / "steps"

    @property
    def saved_folder(self) -> Path:
        """What the script has saved as MXNet's arrays, in the order of the names."""
        return self.folder / "saved"

    @property
    def norms_file(self) -> Path:
        """Where this run writes the constants."""
        return self.folder / "norms.json"

    @property
    def follows_file(self) -> Path:
        """Is there where the script's batch follows the number of workers."""
        return self.folder / "follows"

    def gate(self, step: int) -> Path:
        return self.folder / f"go-{step}"

    def done(self, kill: Kill) -> Path:
        """Whoever makes it is the one that dies."""
        return self.folder / f"killed-{kill.step}"

    def write(self) -> Path:
        """Makes the run's folder; the file that the variable names."""
        self.steps_folder.mkdir(parents=True)
        self.saved_folder.mkdir()
        (self.folder / "output").mkdir()
        path = self.folder / "order.json"
        path.write_text(self.model_dump_json())
        return path


class Taken(NamedTuple):
    """Of which step a worker's values are, as its file's name says. `step` counts over all loops; before a loop's first
    step they are those that it begins with.
    """

    loop: int
    step: int
    generation: int
    workers: int
    rank: int
    pid: int

    @property
    def name(self) -> str:
        return ".".join(map(str, self)) + SUFFIX

    @staticmethod
    def of(name: str) -> Taken:
        return Taken(*map(int, name.removesuffix(SUFFIX).split(".")))


def taken(folder: Path) -> Iterator[tuple[Taken, Path]]:
    """What is there by now, in order."""
    found = [(Taken.of(path.name), path) for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("_")]
    yield from sorted(found)


@functools.cache
def order() -> Order | None:
    """Of this process."""
    path = os.environ.get(VARIABLE)
    return None if path is None else Order.model_validate_json(Path(path).read_text())
