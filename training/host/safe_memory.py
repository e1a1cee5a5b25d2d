"""Memory that outlives a worker: its supervisor makes it, and the workers that it starts inherit it, one after another.

Anonymous files in memory: nobody finds them by a name, no limit of a `/dev/shm` holds for them, and their pages go with
the supervisor's process, however that ends. Three: a state is written while the one before is whole, and while a slow
commit still reads an earlier one.
"""

from __future__ import annotations

import logging
import os

SAFE_MEMORY = "DYNTRAIN_SAFE_MEMORY"  # the file descriptors that a worker inherits, with commas between
log = logging.getLogger(__name__)


class SafeMemory:
    """The supervisor's end. `descriptors` are for each worker and spare to inherit, `environment` tells it of them;
    none where there is no such memory to be had.
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
        """Safe to call twice. A worker that still runs keeps what it has mapped."""
        closed, self.descriptors = self.descriptors, ()
        for descriptor in closed:
            os.close(descriptor)


def inherited_memory() -> tuple[int, ...]:
    """The descriptors of the supervisor's memory, which are kept from this process's own children; none in a process
    without a supervisor.
    """
    text = os.environ.pop(SAFE_MEMORY, "")
    descriptors = tuple(int(number) for number in text.split(",") if number)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors
