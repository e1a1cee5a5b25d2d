"""Memory that outlives a worker: the supervisor allocates the memory, and each of its workers inherits the memory.

The memory consists of three anonymous files (memfd_create(2)). Limits of `/dev/shm` do not apply to anonymous files,
and the kernel frees the memory of the files when the supervisor's process ends. Three files are needed, as a new state
is written while the previous state stays complete, and a slow commit may still read an earlier state.
"""

from __future__ import annotations

import logging
import os

SAFE_MEMORY = "DYNTRAIN_SAFE_MEMORY"  # variable with the inherited file descriptors, separated by commas
log = logging.getLogger(__name__)


class SafeMemory:
    """The memory that a supervisor allocates for its workers' states.

    Workers and spares inherit `descriptors`, whose numbers are in the variables `environment`.

    If the kernel gives no memory, `descriptors` and `environment` are empty.
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
        """Close the memory's files, unless they are closed already.

        A worker that is running can still use the memory until the worker ends.
        """
        descriptors, self.descriptors = self.descriptors, ()
        for descriptor in descriptors:
            os.close(descriptor)


def inherited_memory() -> tuple[int, ...]:
    """Return the descriptors of the supervisor's memory, and prevent this process's children from inheriting them.

    Returns () if no supervisor started this process.
    """
    descriptor_list = os.environ.pop(SAFE_MEMORY, "")
    descriptors = tuple(int(descriptor_text) for descriptor_text in descriptor_list.split(",") if descriptor_text)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors
