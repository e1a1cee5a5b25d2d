"""The controller's errors. The base class of an error says whether the caller may repeat the failed call.

After a `RetryLater`, the caller may repeat the same call later. After a `GiveUp`, the same call fails again until a
person corrects the cause.
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of the controller's own errors. The message of an error names the problem and a remedy."""


class RetryLater(ControllerError):
    """A temporary error: the same call may succeed later."""


class Conflict(RetryLater):  # of two writers
    """A conditional write to DynamoDB that failed because another writer was faster. The caller has to read the item
    again before the next write.
    """


class GiveUp(ControllerError):
    """An error that would occur again if the same call were repeated."""


class Misconfigured(GiveUp):
    """An error whose cause is a missing or wrong setting, policy or credential."""


class Refused(GiveUp):  # by AWS
    """A request that AWS refused. `code` is AWS's own error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class DisputedTarget(GiveUp):
    """Another controller published a target with the same revision, but different contents. The published target is not
    overwritten, because a coordinator that has read one target of a revision ignores every other target of the same
    revision.
    """


class Quarantined(GiveUp):  # for an unreadable event
    """An event whose payload cannot be read. After retrying the event, Lambda moves the payload with this error to the
    dead-letter queue.
    """
