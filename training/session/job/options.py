"""The options that a user sets for a job before its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.roster import FailureBudget

PAUSE_SECONDS = 3600.0  # default of --pause-seconds


@dataclass(frozen=True)
class Options:
    cluster: str  # name of the cluster
    job: str  # name of the job
    started_at: float  # seconds since 1970
    limits: Limits  # least and most workers
    workers: int  # number of workers in the first generation
    waits: bool = False  # whether the job waits for launches, which run one after another
    segment_steps: int | None = None  # steps between boundaries; None: only at epoch ends
    checkpoint_dir: str | None = None  # folder of this job's commits; None: in the job's folder
    boundary: Literal["epoch", "segment"] = "epoch"  # where the membership changes if no node has a deadline
    state_transfer: Literal["encrypted", "clear"] = "encrypted"  # how a worker's state goes to other workers
    servers: Literal["base", "all"] = "base"  # which nodes run ps-lite's processes
    recovery: Literal["release", "restart"] = "release"  # what follows the loss of a worker
    clocks: Clocks = field(default_factory=Clocks)  # all time limits
    pause_seconds: float = PAUSE_SECONDS  # after which a job without enough workers or ps-lite processes fails
    budget: FailureBudget = field(default_factory=FailureBudget)  # limits of a worker's failures
