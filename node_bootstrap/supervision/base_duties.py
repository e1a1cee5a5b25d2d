"""Duties of a base node: it keeps ps-lite processes, and runs the coordinator when it is nominated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dyntrain.node_bootstrap.supervision.group import PsGroup
from dyntrain.node_bootstrap.supervision.master import CoordinatorKeeper


class BaseDuties:
    """The duties of a base node, which last until the node ends.

    `wait_until_due` returns when the node is a base node: at once, or after it gets the tag. `all_serve`: every node
    keeps ps-lite processes from the start. `coordinator` is None if the node can never run it.
    """

    def __init__(
        self,
        wait_until_due: Callable[[], Awaitable[None]],
        group: PsGroup,
        coordinator: CoordinatorKeeper | None = None,
        all_serve: bool = False,
    ) -> None:
        self._wait_until_due, self.group, self.coordinator = wait_until_due, group, coordinator
        self._all_serve, self.has_begun = all_serve, False

    @property
    def serves(self) -> bool:
        """Whether this node keeps ps-lite processes."""
        return self._all_serve or self.has_begun

    async def run(self) -> None:
        """Run the duties until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._all_serve:
                tasks.create_task(self.group.run())
            await self._wait_until_due()
            self.has_begun = True
            self.group.become_base()
            if not self._all_serve:
                tasks.create_task(self.group.run())
            if self.coordinator is not None:
                tasks.create_task(self.coordinator.run())


async def return_at_once() -> None:
    """Return at once: the `wait_until_due` of a base node."""


async def wait_forever() -> None:
    """Wait forever: the `wait_until_due` of nodes that are no base nodes."""
    await asyncio.Event().wait()
