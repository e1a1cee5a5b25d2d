"""Duties of a base node, which keeps ps-lite processes, and runs the coordinator while the controller nominates it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dyntrain.node_bootstrap.supervision.group import PsGroup
from dyntrain.node_bootstrap.supervision.master import CoordinatorKeeper


class BaseDuties:
    """Carries out the duties of a base node, until the node's program ends.

    `wait_until_due` returns once the node is a base node: at once, or after the instance has got the tag of base nodes.
    With `all_serve`, this node keeps ps-lite processes even if it is not a base node. `coordinator` is None if this
    node can never run the coordinator.
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
    def runs_ps_lite(self) -> bool:
        """Whether this node keeps ps-lite processes."""
        return self._all_serve or self.has_begun

    async def run(self) -> None:
        """Wait until the node is a base node, and carry out the duties of a base node until cancelled."""
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
    """Return at once; used as `wait_until_due` on a node that is a base node from the start."""


async def wait_forever() -> None:
    """Wait forever; used as `wait_until_due` on a node that never becomes a base node."""
    await asyncio.Event().wait()
