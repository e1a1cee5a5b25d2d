"""Watches for the base tag on a node that began without it: then it keeps ps-lite processes and stands by for the coordinator too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from controller.contract import BASE_TAG
from node_bootstrap.errors import NodeError
from node_bootstrap.identity import is_base
from node_bootstrap.metadata import MetadataClient
from node_bootstrap.pacing import Timing

log = logging.getLogger(__name__)


async def until_base(metadata: MetadataClient, promoted: Callable[[], None], timing: Timing) -> None:
    """Asks every `Timing.notices` seconds, and calls `promoted` once. What a node began it keeps until it retires, whatever becomes of the tag."""
    while True:
        try:
            value = await metadata.read(f"meta-data/tags/instance/{BASE_TAG}")
        except NodeError as error:
            log.warning("cannot look for the base tag", extra={"reason": str(error)})
        else:
            if value is not None and is_base({BASE_TAG: value}):
                log.info("this node is a base node from now on", extra={"tag": value})
                promoted()
                return
        await asyncio.sleep(timing.notices)
