"""Publish tag change events of EC2 instances, by comparing the tags before and after a call."""

from __future__ import annotations

from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.lambdas.bus import Bus

Snapshot = dict[str, dict[str, str]]


def changed_keys(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Keys that were added, removed or got another value, sorted."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


class TagWatch:
    """Publish tag changes by instance. An event's `version` counts the changes of its instance. AWS's own tags (`aws:`)
    are left out: no document says that AWS shows them in these events.
    """

    def __init__(self, account: Account, bus: Bus) -> None:
        self._account = account
        self._bus = bus
        self._versions: dict[str, int] = {}

    def snapshot(self, resources: list[str]) -> Snapshot:
        return {resource: self._account.instance_tags(resource) for resource in resources if resource.startswith("i-")}

    def emit(self, before: Snapshot) -> None:
        """Publish one event for each instance whose tags differ from `before`."""
        for instance_id, old_tags in before.items():
            tags = self._account.instance_tags(instance_id)
            if changed := changed_keys(old_tags, tags):
                version = self._versions[instance_id] = self._versions.get(instance_id, 0) + 1
                shown = {key: value for key, value in tags.items() if not key.startswith("aws:")}
                self._bus.publish(events.tag_change(self._bus.origin(), instance_id, changed, version, shown))
