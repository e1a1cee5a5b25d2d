"""Check instance ids that users type."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dyntrain.controller.contract.errors import Misconfigured


def check_instance_ids(instances: Iterable[str]) -> None:
    """Raise Misconfigured if an element of `instances` is no instance id."""
    from dyntrain.controller.contract.messages import INSTANCE_ID

    for instance in instances:
        if not re.fullmatch(INSTANCE_ID, instance):
            raise Misconfigured(f"{instance!r} is no instance id")
