"""The controller's errors, in a tree by what the caller should do.

ControllerError
  RetryLater      nothing is wrong with the request: the same call later may work (throttled, network, lost race)
    Conflict      somebody else wrote the item first: read again, merge, write again
  GiveUp          the same call fails again until a person changes something
    Misconfigured a setting, a policy or the credentials
    Refused       AWS understood the request and refused it
    Disputed      another controller published the same target revision with different content
    Quarantined   a malformed payload or stored record
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all errors that the controller raises on purpose. The message names the problem and a remedy."""


class RetryLater(ControllerError):
    """A temporary error: the same call may succeed later."""


class Conflict(RetryLater):
    """A conditional write that failed because another writer was faster. Read the item again before the next write."""


class GiveUp(ControllerError):
    """An error that repeating the call does not mend."""


class Misconfigured(GiveUp):
    """A setting, a policy or credentials that are missing or wrong."""


class Refused(GiveUp):
    """A request that AWS refused; `code` is AWS's own error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Disputed(GiveUp):
    """Two targets with the same revision and different contents. No target is overwritten, because the coordinator
    obeys the first target of a revision that it reads.
    """


class Quarantined(GiveUp):
    """An unreadable payload. After its retries, Lambda moves the payload with this error to the dead-letter queue."""
