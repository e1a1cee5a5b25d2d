"""Errors of the embedded cloud (an emulation of AWS), and error answers to API clients.

A `LocalCloudError` tells the user who starts the embedded cloud what to do. An `ApiError` becomes an error answer to an
API client, with AWS's code and message.
"""

from __future__ import annotations


class LocalCloudError(Exception):
    """Raised when the embedded cloud cannot start or cannot continue."""


class InstallationFailed(LocalCloudError):
    """Raised when the Python environment from which machines run their programs could not be built."""


class PortInUse(LocalCloudError):
    """Raised when a port cannot be used: another program listens there, or this user may not use the port."""


class AppNotLoaded(LocalCloudError):
    """Raised when a handler process could not import the Chalice app."""


class ResourcesInvalid(LocalCloudError):
    """Raised when the controller's stack cannot be created, as when `.chalice/resources.yaml` is absent or defines no
    table.
    """


class ProvisionFailed(LocalCloudError):
    """Raised when a cluster could not be created through the API."""


class ApiError(Exception):
    """An error answer to an API call, with AWS's `code` and `message`."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
