"""Memory that outlives a worker: its supervisor makes it, and one worker after another inherits it.

It consists of anonymous files in memory: they have no name, no limit of `/dev/shm` applies, and their pages go with the
supervisor's process, however it ends. There are three: a new state is written while the previous one stays complete,
and a slow commit may still read an earlier one.
"""

from __future__ import annotations

import logging
import os

SAFE_MEMORY = "DYNTRAIN_SAFE_MEMORY"  # inherited file descriptors, separated by commas
log = logging.getLogger(__name__)


class SafeMemory:
    """The supervisor's end. Workers and spares inherit `descriptors`, listed in `environment`; none if there is no such
    memory.
    """

    def __init__(self) -> None:
        self.descriptors: tuple[int, ...] = ()
        try:
            for letter in "abc":
                self.descriptors += (os.memfd_create(f"dyntrain-safe-{letter}"),)
        except OSError as error:
            self.close()
            log.warning("no shared memory for the workers' state (%s): a restart goes on from the last commit", error)

    @property
    def environment(self) -> dict[str, str]:
        return {SAFE_MEMORY: ",".join(map(str, self.descriptors))} if self.descriptors else {}

    def close(self) -> None:
        """Close the files; safe to call twice. A running worker keeps what it has mapped."""
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)


def inherited_memory() -> tuple[int, ...]:
    """Descriptors of the supervisor's memory, hidden from this process's own children; none without a supervisor."""
    text = os.environ.pop(SAFE_MEMORY, "")
    descriptors = tuple(int(number) for number in text.split(",") if number)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors
