"""Files by which `dyntrain check` and the processes of a script communicate in a trial run.

`dyntrain check` writes an order into a file, and names this file in an environment variable. The script's processes
save values, which `dyntrain check` compares. A process without this environment variable is not part of a trial.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

VARIABLE = "DYNTRAIN_TRIAL"  # environment variable with the path of the order
SUFFIX = ".npz"  # of files with saved values
Moment = Literal["before", "after"]  # relative to the summation of the worker's gradients


class Kill(BaseModel):
    """An order that the worker with the given rank kills itself once within the given step.

    With fewer workers, the worker with the last rank kills itself.
    """

    model_config = ConfigDict(frozen=True)

    step: int  # step within which the worker kills itself
    rank: int  # rank of the worker
    moment: Moment  # when in the step


class Order(BaseModel):
    """Settings of one trial run of the script.

    If `samples` is None, an epoch has four full batches, and one batch that is as large as the script's last batch.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path  # folder of the run's files
    steps: int  # the most steps of a loop
    epochs: int | None = None  # the most epochs of a loop
    samples: int | None = None  # the most samples of an epoch
    nudge: bool = False  # whether to change the initial weights by one rounding error
    seed: int = 0  # seed of the run's random numbers
    other_draws: bool = False  # whether the random generators draw as those of another worker
    rules: bool = False  # whether the script's checks may try parts of the first batch; such a run is not compared
    norms: Path | None = None  # file with constants in place of BatchNorm's statistics; None: from the first batch
    held: tuple[int, ...] = ()  # steps after which each worker waits for a file (`gate_file`)
    kills: tuple[Kill, ...] = ()  # workers that kill themselves

    @property
    def steps_folder(self) -> Path:
        return self.folder / "steps"

    @property
    def saved_folder(self) -> Path:
        """The folder with the files of MXNet arrays that the script has saved, in the order of the files' names."""
        return self.folder / "saved"

    @property
    def norms_file(self) -> Path:
        """The file to which this run writes the constants that replace BatchNorm's statistics."""
        return self.folder / "norms.json"

    @property
    def varying_batch_file(self) -> Path:
        """The file that exists if the script's batch size follows the number of workers."""
        return self.folder / "follows"

    def gate_file(self, step: int) -> Path:
        """The file for which all workers wait after the given step."""
        return self.folder / f"go-{step}"

    def kill_marker(self, kill: Kill) -> Path:
        """The file that marks a kill as done; the process that creates the file then kills itself."""
        return self.folder / f"killed-{kill.step}"

    def write(self) -> Path:
        """Make the run's folder and write the order into a file.

        Return the path of the order's file, for the environment variable.
        """
        self.steps_folder.mkdir(parents=True)
        self.saved_folder.mkdir()
        (self.folder / "output").mkdir()
        order_path = self.folder / "order.json"
        order_path.write_text(self.model_dump_json())
        return order_path


class SavedStep(NamedTuple):
    """Loop, step and process to which saved values belong; the name of their file contains these numbers.

    The number `step` is counted over all loops over epochs. A file with the step before a loop's first step contains
    the loop's initial values.
    """

    loop: int  # index of the loop over epochs
    step: int  # number of the step
    generation: int  # number of the generation
    workers: int  # number of workers in the step
    rank: int  # rank of the worker
    pid: int  # of the worker process

    @property
    def name(self) -> str:
        return ".".join(map(str, self)) + SUFFIX

    @staticmethod
    def parse(name: str) -> SavedStep:
        return SavedStep(*map(int, name.removesuffix(SUFFIX).split(".")))


def saved_steps(folder: Path) -> Iterator[tuple[SavedStep, Path]]:
    """Yield the files of saved values in the folder, in the order of loops and steps."""
    files = [(SavedStep.parse(path.name), path) for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("_")]
    yield from sorted(files)


@functools.cache
def trial_order() -> Order | None:
    """Return the order for this process, or None if the process is not part of a trial."""
    order_path = os.environ.get(VARIABLE)
    return None if order_path is None else Order.model_validate_json(Path(order_path).read_text())
