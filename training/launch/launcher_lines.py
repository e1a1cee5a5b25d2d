"""Makes the log lines of AWS Dynamic Training's launcher, as users' scripts may search for these lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dyntrain.training import events


@dataclass
class LauncherLines:
    """Makes the launcher's log lines for the events of one job. Pass each event of the job to `lines_for`."""

    _formed: bool = False  # whether a generation has formed
    _announced: set[str] = field(default_factory=set)  # instances whose lines were made

    def lines_for(self, event: events.Event) -> list[str]:
        """Return the launcher's log lines for an event.

        The lines of a node are returned once until the node leaves, even if its program reconnects.
        """
        match event:
            case events.Formed():
                self._formed = True
            case events.Left(instance=instance) | events.NodeLost(instance=instance):
                self._announced.discard(instance)
            case events.NodeReady(instance=instance, address=address) if address and instance not in self._announced:
                self._announced.add(instance)
                ready_line = f"Found prepare data success file: {address}"
                if self._formed:
                    return [ready_line, f"Launching new worker jobs: {address}"]
                server_lines = [f"Launching server node at ip: {address}"] if event.base else []
                return [ready_line, *server_lines, f"Launching worker node at ip: {address}"]
        return []
