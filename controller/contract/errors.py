"""The controller's errors. The base class of an error says what the caller should do.

After a `RetryLater`, the caller may repeat the same call later. After a `GiveUp`, the same call fails until a person
changes something.
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all errors that the controller raises on purpose. The message names the problem and a remedy."""


class RetryLater(ControllerError):
    """A temporary error: the same call may succeed later."""


class Conflict(RetryLater):
    """A conditional write to DynamoDB that failed because another writer was faster. Read the item again before the
    next write.
    """


class GiveUp(ControllerError):
    """An error that would occur again if the same call were repeated."""


class Misconfigured(GiveUp):
    """An error because a setting, a policy or credentials are missing or wrong."""


class Refused(GiveUp):
    """A request that AWS refused. `code` is AWS's own error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Disputed(GiveUp):
    """Another controller published a target with the same revision, but different contents. The published target is not
    overwritten, because the coordinator obeys the first target of a revision that it reads.
    """


class Quarantined(GiveUp):
    """A payload that cannot be read. After its retries, Lambda moves the payload with this error to the dead-letter
    queue.
    """
