"""Files between `dyntrain check` and the processes of a script: an order, named by a variable, and the answers.

A process without the variable is in no trial.
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
Moment = Literal["before", "after"]  # the summation of the worker's gradients


class Kill(BaseModel):
    """The worker of this rank, or the last one if there are fewer, kills itself once within the step."""

    model_config = ConfigDict(frozen=True)

    step: int
    rank: int
    moment: Moment


class Order(BaseModel):
    """One run of the script. `steps`: limit for each loop; so are `epochs`, and `samples` of an epoch.

    `samples` None: four batches and the last one's size. `nudge`: change the initial weights by one rounding error.
    `other_draws`: the random generators are those of another worker. `rules`: nothing is compared, so the rules may try
    the first batch's parts. `norms`: file with the constants that replace BatchNorm's statistics; None: they are taken
    from the first batch. `held`: steps after which each worker waits for a file (`gate`).
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
        """Files of MXNet arrays that the script has saved, in the order of their names."""
        return self.folder / "saved"

    @property
    def norms_file(self) -> Path:
        """Where this run writes the constants."""
        return self.folder / "norms.json"

    @property
    def follows_file(self) -> Path:
        """Exists if the script's batch follows the number of workers."""
        return self.folder / "follows"

    def gate(self, step: int) -> Path:
        """File that workers wait for after a step."""
        return self.folder / f"go-{step}"

    def done(self, kill: Kill) -> Path:
        """File whose maker is the process that dies."""
        return self.folder / f"killed-{kill.step}"

    def write(self) -> Path:
        """Make the run's folder; returns the order's path, for the variable."""
        self.steps_folder.mkdir(parents=True)
        self.saved_folder.mkdir()
        (self.folder / "output").mkdir()
        path = self.folder / "order.json"
        path.write_text(self.model_dump_json())
        return path


class Taken(NamedTuple):
    """Step, worker and process of saved values, as in their file's name.

    `step` counts over all loops. A file from before a loop's first step has the loop's initial values.
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
    """The files that exist by now, in order."""
    files = [(Taken.of(path.name), path) for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("_")]
    yield from sorted(files)


@functools.cache
def order() -> Order | None:
    """Order for this process, None outside of a trial."""
    path = os.environ.get(VARIABLE)
    return None if path is None else Order.model_validate_json(Path(path).read_text())
