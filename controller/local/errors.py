"""What can go wrong with the embedded cloud itself, and what it refuses to its clients.

`LocalCloudError` is for the person who starts the cloud: its message says what to do. `Refusal` goes back to an API client as AWS would say it.
"""

from __future__ import annotations


class LocalCloudError(Exception):
    """The cloud cannot start or go on."""


class MotoMissing(LocalCloudError):
    """The optional dependencies of the embedded cloud are not installed."""


class PortInUse(LocalCloudError):
    """Another program listens on the wanted port."""


class AppNotLoaded(LocalCloudError):
    """The Chalice app could not be imported by a handler process."""


class ResourcesInvalid(LocalCloudError):
    """`.chalice/resources.yaml` is absent or does not define the table."""


class ProvisionFailed(LocalCloudError):
    """A cluster could not be set up through the API."""


class Refusal(Exception):
    """An API call is answered with this error; `code` and `message` are worded as AWS words them."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
