"""Client of the EC2 instance metadata service, version 2, using only the standard library."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request

ADDRESS = "http://169.254.169.254"
TOKEN_SECONDS = 21600  # lifetime of a session token
CALL_SECONDS = 5.0  # time limit of a request


class MetadataMissing(Exception):
    """The instance metadata service does not answer, or does not contain a value."""


class Metadata:
    def __init__(self) -> None:
        self._base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", ADDRESS).rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach this address
        self._token = ""
        self._token_expires = 0.0

    def get(self, path: str) -> str | None:
        """Return the value at `meta-data/<path>`, or None if there is no value. Raises MetadataMissing."""
        try:
            if time.monotonic() >= self._token_expires:
                headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                self._token = self._request("PUT", "api/token", headers)
                self._token_expires = time.monotonic() + TOKEN_SECONDS / 2
            return self._request("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise MetadataMissing(f"{path}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise MetadataMissing(f"{path}: {error}") from error

    def wait_for(self, path: str, seconds: float) -> str:
        """Wait until the value at `meta-data/<path>` exists, and return the value.

        Raises MetadataMissing if the value does not exist after `seconds` seconds.
        """
        deadline = time.monotonic() + seconds
        last_failure = "the value does not exist"
        while True:
            try:
                if value := self.get(path):
                    return value
            except MetadataMissing as error:
                last_failure = str(error)
            if time.monotonic() >= deadline:
                raise MetadataMissing(f"no instance metadata {path} after {seconds:.0f} seconds: {last_failure}")
            time.sleep(1.0)

    def _request(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(f"{self._base}/latest/{path}", method=method, headers=headers)  # noqa: S310
        with self._opener.open(request, timeout=CALL_SECONDS) as response:
            return str(response.read().decode())
