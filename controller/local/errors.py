"""Errors of the embedded cloud itself, and refusals to its clients.

`LocalCloudError` is for the person who starts the cloud: its message says what to do. `ApiError` goes to an API client
in AWS's words.
"""

from __future__ import annotations


class LocalCloudError(Exception):
    """The cloud cannot start or go on."""


class InstallationFailed(LocalCloudError):
    """The environment from which machines run their programs could not be built."""


class PortInUse(LocalCloudError):
    """A port cannot be taken: another program listens there, or it needs other rights."""


class AppNotLoaded(LocalCloudError):
    """The Chalice app could not be imported by a handler process."""


class ResourcesInvalid(LocalCloudError):
    """`.chalice/resources.yaml` is absent or does not define the table."""


class ProvisionFailed(LocalCloudError):
    """A cluster could not be set up through the API."""


class ApiError(Exception):
    """An error answer to an API call; `code` and `message` are worded as AWS words them."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
