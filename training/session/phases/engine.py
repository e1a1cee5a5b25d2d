"""Which engine the job's workers run, and what its processes mean for the job. Pure."""

from __future__ import annotations

from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.session.job.round import PsGroup
from dyntrain.training.session.job.state import JobState


def engine_of(job: JobState) -> EngineName:
    """They all said the same (`generation.agreement`)."""
    return next((hello.engine for hello in job.roster.members.values()), "pslite")


def only_while_it_forms(job: JobState) -> None:
    """Horovod's workers train without any other process: the loss of the node where they found each other costs no more
    than the loss of its worker.
    """
    if engine_of(job) == "horovod":
        job.round.group = PsGroup()
