"""Client of the EC2 instance metadata service, only version 2: every request contains a session token.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import random
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import GiveUp, MetadataUnavailable, OnlyMetadataV1
from dyntrain.training.protocol.clocks import spread

DEFAULT_URL = "http://169.254.169.254"
TOKEN_LIFETIME_SECONDS = 21600
MAX_ANSWER_BYTES = 256 * 1024
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HttpAnswer:
    """Status code and body of the response to an HTTP request."""

    status: int  # HTTP status code
    body: str


class MetadataClient:
    """Client of the instance metadata service.

    A request is tried `Timing.metadata_tries` times, with growing pauses. If all tries of a request fail, the client
    raises MetadataUnavailable.
    """

    def __init__(self, url: str, timing: Timing) -> None:
        url_parts = urlsplit(url)
        if url_parts.scheme != "http" or not url_parts.hostname:
            raise GiveUp(f"the metadata endpoint {url!r} is no http URL; correct AWS_EC2_METADATA_SERVICE_ENDPOINT")
        self._host, self._port = url_parts.hostname, url_parts.port or 80
        self._url, self._timing = url, timing
        self._token: str | None = None

    async def read(self, path: str) -> str | None:
        """Return the text at `/latest/<path>` of the metadata service, or None if the path does not exist."""
        last_failure = ""
        for earlier_tries in range(self._timing.metadata_tries):
            if earlier_tries:
                await asyncio.sleep(spread(self._timing.metadata_backoff.delay(earlier_tries - 1), random.random()))
            try:
                http_answer = await self._read_once(path)
            except (OSError, http.client.HTTPException) as error:
                last_failure = f"{type(error).__name__}: {error}"
                continue
            if http_answer.status == 200:
                return http_answer.body
            if http_answer.status == 404:
                return None
            last_failure = f"HTTP status {http_answer.status}"
        raise MetadataUnavailable(
            f"instance metadata service at {self._url} did not answer {path} in {self._timing.metadata_tries} "
            f"tries ({last_failure}); "
            "check that the metadata endpoint is enabled on the instance and its hop limit allows this process"
        )

    async def read_required(self, path: str) -> str:
        """Return the text at `/latest/<path>` of the metadata service.

        Raises MetadataUnavailable if the path does not exist.
        """
        text = await self.read(path)
        if text is None:
            raise MetadataUnavailable(f"instance metadata service at {self._url} does not contain {path}")
        return text

    async def _read_once(self, path: str) -> HttpAnswer:
        if self._token is None:
            self._token = await self._new_token()
        http_answer = await asyncio.to_thread(self._request, "GET", path, {"X-aws-ec2-metadata-token": self._token})
        if http_answer.status == 401:  # the token has expired, or the instance was stopped and started
            self._token = None
        return http_answer

    async def _new_token(self) -> str:
        http_answer = await asyncio.to_thread(
            self._request, "PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_LIFETIME_SECONDS)}
        )
        if http_answer.status == 200:
            return http_answer.body
        if 400 <= http_answer.status < 500 and http_answer.status != 429:
            tokenless_answer = await asyncio.to_thread(self._request, "GET", "meta-data/instance-id", {})
            if tokenless_answer.status == 200:
                raise OnlyMetadataV1(
                    f"instance metadata service at {self._url} answers version 1 only (token request: HTTP status "
                    f"{http_answer.status}); "
                    "this node uses version 2: set HttpTokens=required on the instance, or remove the proxy in between"
                )
        raise http.client.HTTPException(f"token request failed: HTTP status {http_answer.status}")

    def _request(self, method: str, path: str, headers: dict[str, str]) -> HttpAnswer:
        # a direct connection, never through a proxy
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timing.metadata_timeout_seconds)
        try:
            connection.request(method, f"/latest/{quote(path, safe='/:@+=-_.')}", headers=headers)
            response = connection.getresponse()
            return HttpAnswer(response.status, response.read(MAX_ANSWER_BYTES).decode("utf-8", "replace"))
        finally:
            connection.close()
