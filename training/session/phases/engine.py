"""The engine of the job's workers, and the lifetime of the engine's own processes. Pure."""

from __future__ import annotations

from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.session.job.round import PsGroup
from dyntrain.training.session.job.state import JobState


def engine_of(job: JobState) -> EngineName:
    """Return the workers' engine, which is equal on all workers (`generation.agreement`)."""
    return next((hello.engine for hello in job.roster.members.values()), "pslite")


def forget_rendezvous(job: JobState) -> None:
    """Forget Horovod's rendezvous after the formation.

    Horovod's workers train without any other process, so the loss of the rendezvous' node costs no more than the loss
    of a worker.
    """
    if engine_of(job) == "horovod":
        job.round.group = PsGroup()
