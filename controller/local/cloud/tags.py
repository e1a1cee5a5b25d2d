"""Publish tag change events of EC2 instances, by comparing the tags before and after an API call."""

from __future__ import annotations

from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.lambdas.bus import EventBus

TagsByInstance = dict[str, dict[str, str]]


def changed_keys(former_tags: dict[str, str], present_tags: dict[str, str]) -> list[str]:
    """The sorted keys of tags that were added, were removed or got another value."""
    return sorted(
        key for key in former_tags.keys() | present_tags.keys() if former_tags.get(key) != present_tags.get(key)
    )


class TagWatch:
    """Publish tag change events of instances. An event's `version` counts the tag changes of its instance. AWS's own
    tags, whose keys begin with `aws:`, are left out of the events, because AWS does not document that tag change events
    show AWS's own tags.
    """

    def __init__(self, account: Account, bus: EventBus) -> None:
        self._account = account
        self._bus = bus
        self._versions: dict[str, int] = {}

    def tags_snapshot(self, resource_ids: list[str]) -> TagsByInstance:
        return {
            resource_id: self._account.instance_tags(resource_id)
            for resource_id in resource_ids
            if resource_id.startswith("i-")
        }

    def publish_changes(self, former_snapshot: TagsByInstance) -> None:
        """Publish one event for each instance whose tags differ from `former_snapshot`."""
        for instance_id, former_tags in former_snapshot.items():
            present_tags = self._account.instance_tags(instance_id)
            if changed_tag_keys := changed_keys(former_tags, present_tags):
                tag_version = self._versions[instance_id] = self._versions.get(instance_id, 0) + 1
                published_tags = {key: value for key, value in present_tags.items() if not key.startswith("aws:")}
                self._bus.publish(
                    events.tag_event(self._bus.origin(), instance_id, changed_tag_keys, tag_version, published_tags)
                )
