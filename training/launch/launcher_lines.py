"""What AWS Dynamic Training's launcher said of the nodes, which people's scripts look for in its log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dyntrain.training import events


@dataclass
class LauncherLines:
    """Of one job: told its events one by one."""

    _formed: bool = False
    _known: set[str] = field(default_factory=set)

    def of(self, event: events.Event) -> list[str]:
        """Each node once, until it has left: it may connect again at any time."""
        match event:
            case events.Formed():
                self._formed = True
            case events.Left(instance=instance) | events.NodeLost(instance=instance):
                self._known.discard(instance)
            case events.NodeReady(instance=instance, address=address) if address and instance not in self._known:
                self._known.add(instance)
                found = f"Found prepare data success file: {address}"
                if self._formed:
                    return [found, f"Launching new worker jobs: {address}"]
                serving = [f"Launching server node at ip: {address}"] if event.base else []
                return [found, *serving, f"Launching worker node at ip: {address}"]
        return []
