"""Memory that outlives a worker: the supervisor allocates it, and one worker after another inherits it.

The memory consists of anonymous files without a name. No limit of `/dev/shm` applies, and the kernel frees the pages
when the supervisor's process ends. There are three files: a new state is written while the previous state stays
complete, and a slow commit may still read an earlier state.
"""

from __future__ import annotations

import logging
import os

SAFE_MEMORY = "DYNTRAIN_SAFE_MEMORY"  # inherited file descriptors, separated by commas
log = logging.getLogger(__name__)


class SafeMemory:
    """The supervisor's memory. Workers and spares inherit `descriptors`, which `environment` lists.

    Both are empty if the kernel gives no memory.
    """

    def __init__(self) -> None:
        self.descriptors: tuple[int, ...] = ()
        try:
            for letter in "abc":
                self.descriptors += (os.memfd_create(f"dyntrain-safe-{letter}"),)
        except OSError as error:
            self.close()
            log.warning("no shared memory for the workers' state (%s): a restart continues from the last commit", error)

    @property
    def environment(self) -> dict[str, str]:
        return {SAFE_MEMORY: ",".join(map(str, self.descriptors))} if self.descriptors else {}

    def close(self) -> None:
        """Close the memory's files, unless they are closed already. A running worker keeps its mapped memory."""
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)


def inherited_memory() -> tuple[int, ...]:
    """Descriptors of the supervisor's memory, which this process's children do not inherit.

    Returns () without a supervisor.
    """
    descriptor_list = os.environ.pop(SAFE_MEMORY, "")
    descriptors = tuple(int(descriptor_text) for descriptor_text in descriptor_list.split(",") if descriptor_text)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors
