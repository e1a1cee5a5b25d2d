"""Knows the engine that the workers use (ps-lite or Horovod), and whether the engine's own processes are needed.

Pure.
"""

from __future__ import annotations

from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.session.job.round import PsGroup
from dyntrain.training.session.job.state import JobState


def engine_of(job: JobState) -> EngineName:
    """Return the engine that the workers use; all workers use the same engine (`generation.agreement`)."""
    return next((hello.engine for hello in job.roster.members.values()), "pslite")


def forget_rendezvous(job: JobState) -> None:
    """Forget the process of Horovod's rendezvous once the generation is formed.

    After the formation, Horovod's workers train without any other process, so losing the node of the rendezvous costs
    no more than losing any node.
    """
    if engine_of(job) == "horovod":
        job.round.group = PsGroup()
