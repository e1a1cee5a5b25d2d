"""`python -m node_bootstrap signal-ready URL`: tells CloudFormation that the cluster's coordinator listens.

The wait condition of the cluster's stack is done then, with as many workers as there are. Only the tagged master signals; a machine that replaces
it signals again, which a condition that is done ignores.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable

from node_bootstrap.config import SsmParameters, read_access
from node_bootstrap.errors import RetryLater, ServiceUnavailable
from node_bootstrap.identity import read_identity
from node_bootstrap.metadata import MetadataClient
from node_bootstrap.pacing import Timing
from node_bootstrap.ports import Parameters

PUT_SECONDS = 10.0
PAUSE_SECONDS = 5.0
READY, NOT_MASTER, TOO_LATE = 0, 0, 75
log = logging.getLogger(__name__)


async def signal_ready(
    url: str, seconds: float, metadata_url: str, parameters: Callable[[str], Parameters] = SsmParameters, pause: float = PAUSE_SECONDS
) -> int:
    """Exit code: 0 once CloudFormation took the signal, or where the node is not the master; 75 after `seconds` without a coordinator."""
    timing = Timing()
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    identity = await read_identity(MetadataClient(metadata_url, timing))
                    if not identity.master:
                        return NOT_MASTER
                    access = await read_access(parameters(identity.region), identity.cluster)
                    if access is not None and access.endpoint.instance_id == identity.instance_id:  # not what an earlier stack of that name left
                        await asyncio.to_thread(_put, url, identity.instance_id, access.endpoint.job)
                        return READY
                except RetryLater as error:
                    log.warning(str(error))
                await asyncio.sleep(pause)
    except TimeoutError:
        log.error("no coordinator was published within %.0f s; its log is on the master", seconds)
        return TOO_LATE


def _put(url: str, instance: str, job: str) -> None:
    """Raises ServiceUnavailable."""
    body = json.dumps({"Status": "SUCCESS", "Reason": "the coordinator listens", "UniqueId": instance, "Data": job}).encode()
    # The signature of the presigned address covers an empty content type.
    request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})  # noqa: S310  # https, or the tests' own server
    try:
        with urllib.request.urlopen(request, timeout=PUT_SECONDS):  # noqa: S310
            log.info("CloudFormation is told that the coordinator listens")
    except (urllib.error.URLError, TimeoutError) as error:
        raise ServiceUnavailable(f"CloudFormation did not take the signal: {getattr(error, 'reason', error)}") from error
