"""`python -m dyntrain.node_bootstrap signal-ready URL`: signals CloudFormation that the master has the shared volume.

After the signal, users can log in to the master and copy the prepare-data script to the volume. The signal completes
the wait condition of the cluster's CloudFormation stack. The data of the signal contain the master's instance id and
address. Only the instance with the master's tag sends the signal. An instance that becomes master later sends the
signal again, but a completed wait condition ignores further signals.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import read_identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.training.timeouts import timeout

SIGNAL_TIMEOUT_SECONDS = 10.0
RETRY_PAUSE_SECONDS = 5.0
READY, NOT_MASTER, TOO_LATE, REFUSED = 0, 0, 75, 78  # exit codes
TEMPORARY_HTTP_CODES = (408, 429)  # client errors that may be temporary
log = logging.getLogger(__name__)


async def signal_ready(url: str, seconds: float, metadata_url: str, pause: float = RETRY_PAUSE_SECONDS) -> int:
    """Signal CloudFormation that the master has mounted the shared volume; returns the exit code.

    The exit code is 0 if CloudFormation accepted the signal, or if this node is not the master. The exit code is 75 if
    CloudFormation did not accept the signal within `seconds`, and 78 if CloudFormation refused the signal.
    """
    metadata = MetadataClient(metadata_url, Timing())
    try:
        async with timeout(seconds):
            while True:
                try:
                    identity = await read_identity(metadata)
                    if not identity.master:
                        return NOT_MASTER
                    master_address = await metadata.read("meta-data/public-ipv4") or identity.private_ip
                    await asyncio.to_thread(_send_signal, url, identity.instance_id, master_address)
                    return READY
                except InvalidConfiguration as error:
                    log.error(str(error))
                    return REFUSED
                except RetryLater as error:
                    log.warning(str(error))
                await asyncio.sleep(pause)
    except TimeoutError:
        log.error("CloudFormation accepted no signal for %.0f s: the stack will time out", seconds)
        return TOO_LATE


def _send_signal(url: str, instance: str, address: str) -> None:
    """Send CloudFormation the signal that the master is ready.

    Raises ServiceUnavailable, or InvalidConfiguration if retrying cannot help.
    """
    request_body = json.dumps(
        {"Status": "SUCCESS", "Reason": "the master takes prepare-data", "UniqueId": instance, "Data": address}
    ).encode()
    # The signature of the presigned URL covers an empty content type.
    # The scheme is https, or http in tests.
    request = urllib.request.Request(url, data=request_body, method="PUT", headers={"Content-Type": ""})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SIGNAL_TIMEOUT_SECONDS):  # noqa: S310
            log.info("CloudFormation accepted the signal that the master is ready for prepare-data")
    except (urllib.error.URLError, TimeoutError) as error:
        if (
            isinstance(error, urllib.error.HTTPError)
            and 400 <= error.code < 500
            and error.code not in TEMPORARY_HTTP_CODES
        ):
            raise InvalidConfiguration(
                f"CloudFormation refuses the signal ({error.code} {error.reason}): the URL in the user data is not "
                "that of the wait condition, or has expired; the node continues"
            ) from error
        raise ServiceUnavailable(
            f"CloudFormation did not accept the signal: {getattr(error, 'reason', error)}"
        ) from error
