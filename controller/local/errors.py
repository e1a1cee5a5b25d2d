"""What can go wrong with the embedded cloud itself, and what it refuses to its clients.

`LocalCloudError` is for the person who starts the cloud: its message says what to do. `ApiError` goes back to an API
client as AWS would say it.
"""

from __future__ import annotations


class LocalCloudError(Exception):
    """The cloud cannot start or go on."""


class InstallationFailed(LocalCloudError):
    """The environment that machines run their programs from could not be made."""


class PortInUse(LocalCloudError):
    """A wanted port cannot be had: another program listens there, or it is not ours to take."""


class AppNotLoaded(LocalCloudError):
    """The Chalice app could not be imported by a handler process."""


class ResourcesInvalid(LocalCloudError):
    """`.chalice/resources.yaml` is absent or does not define the table."""


class ProvisionFailed(LocalCloudError):
    """A cluster could not be set up through the API."""


class ApiError(Exception):
    """An API call is answered with this error; `code` and `message` are worded as AWS words them."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
