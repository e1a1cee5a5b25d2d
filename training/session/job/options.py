"""The options that a person sets for a job before it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.roster import Budget

PAUSE_SECONDS = 3600.0


@dataclass(frozen=True)
class Options:
    cluster: str
    job: str
    started_at: float
    limits: Limits
    workers: int  # number of workers in the first generation
    waits: bool = False  # whether the job waits for launches, which run one after another
    segment_steps: int | None = None
    checkpoint_dir: str | None = None  # folder of this job's commits; None: in the job's folder
    # where voluntary membership changes happen; a node with a deadline leaves at the next segment in any case
    boundary: Literal["epoch", "segment"] = "epoch"
    state_transfer: Literal["encrypted", "clear"] = "encrypted"
    servers: Literal["base", "all"] = "base"  # which nodes run ps-lite's processes
    recovery: Literal["release", "restart"] = "release"
    clocks: Clocks = field(default_factory=Clocks)
    # how long a job without enough workers, or without ps-lite processes, waits for them before it fails
    pause_seconds: float = PAUSE_SECONDS
    budget: Budget = field(default_factory=Budget)
