"""Post JSON to a webhook over HTTPS, only to public IP addresses and within a limited time.

This module uses the library urllib3, which is installed with botocore. The retries of urllib3 would log the webhook's
secret address, so this module implements its own retries.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from dyntrain.controller.contract.errors import GiveUp, RetryLater
from dyntrain.controller.contract.webhook import Webhook

ATTEMPTS = 3  # to send one message
PAUSE_SECONDS = 1.0  # before the second attempt; doubled before the third attempt
CONNECT_SECONDS, READ_SECONDS = 3.0, 5.0  # limits of time
TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)})

PauseFunction = Callable[[float], None]
ResolveFunction = Callable[[str, int], list[str]]


def resolve_addresses(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def is_public(address: str) -> bool:
    """Whether the IP address is public, which excludes addresses of this machine, of the metadata service and of
    private networks. The address is checked because the host name of a webhook may resolve to a private address.
    """
    ip = ipaddress.ip_address(address)
    embedded_ipv4 = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    return (embedded_ipv4 or ip).is_global and not ip.is_multicast


class HttpsSender:
    """Posts JSON to a webhook, at exactly the IP address that was checked to be allowed. Redirects are not followed,
    and only the response's status is read.

    The defaults of `allowed`, `resolve` and `authority` (a file of CA certificates) are changed only in networks other
    than AWS's.
    """

    def __init__(
        self,
        allowed: Callable[[str], bool] = is_public,
        resolve: ResolveFunction = resolve_addresses,
        authority: str | None = None,
        timeout: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
        pause: PauseFunction = time.sleep,
    ) -> None:
        self._allowed, self._resolve, self._authority, self._pause = allowed, resolve, authority, pause
        self._timeout = urllib3.Timeout(connect=timeout[0], read=timeout[1])

    def post(self, webhook: Webhook, payload: Mapping[str, Any]) -> None:
        last_problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                status = self._post_once(webhook, payload, attempt)
            except (
                urllib3.exceptions.HTTPError,
                OSError,
                UnicodeError,
            ) as error:  # the errors' texts contain the address
                last_problem = f"{webhook.host} was not reached: {type(error).__name__}"
                continue
            if 200 <= status < 300:
                return
            last_problem = f"{webhook.host} answered with HTTP {status}"
            if status not in TRANSIENT_STATUSES:
                raise GiveUp(f"the webhook refused the message: {last_problem}")
        raise RetryLater(f"the webhook failed {ATTEMPTS} times: {last_problem}")

    def _post_once(self, webhook: Webhook, payload: Mapping[str, Any], attempt: int) -> int:
        connection_pool = urllib3.HTTPSConnectionPool(
            self._choose_address(webhook, attempt),
            webhook.port,
            maxsize=1,
            timeout=self._timeout,
            retries=False,
            ssl_context=ssl.create_default_context(cafile=self._authority),
            server_hostname=webhook.host,
            assert_hostname=webhook.host,
        )
        host_header = webhook.host if webhook.port == 443 else f"{webhook.host}:{webhook.port}"
        headers = {"Content-Type": "application/json", "Host": host_header, "User-Agent": "dyntrain"}
        with connection_pool:
            response = connection_pool.request(
                "POST", webhook.path, body=json.dumps(payload), headers=headers, redirect=False, preload_content=False
            )
            response.close()
            return response.status

    def _choose_address(self, webhook: Webhook, attempt: int) -> str:
        """Choose an IP address of the webhook's host, a different address for each attempt if the host has several
        addresses. Raises GiveUp when any address of the host is not allowed, because a host with a forbidden address is
        suspicious.
        """
        addresses = self._resolve(webhook.host, webhook.port)
        if not all(map(self._allowed, addresses)):
            raise GiveUp(f"the webhook's host {webhook.host} has an address that is not public")
        return addresses[attempt % len(addresses)]
