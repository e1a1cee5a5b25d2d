"""The controller's one error tree, split by what the caller does about it.

ControllerError
  RetryLater      nothing is wrong with the request: the same call later may work (throttled, network, lost race)
    Conflict      somebody else wrote the item first: read again, merge, write again
  GiveUp          the same call will fail again until a person changes something
    Misconfigured a setting, a policy or the credentials
    Refused       AWS understood the request and said no
    Disputed      somebody else has published this revision with other content
    Quarantined   a payload or record that cannot be what it says it is
"""

from __future__ import annotations


class ControllerError(Exception):
    """Base of all errors that the controller raises on purpose; the text says what happened, to what, and what to
    do.
    """


class RetryLater(ControllerError):
    """An error that passes: repeat the same call later."""


class Conflict(RetryLater):
    """A conditional write that lost a race; reading the item again shows who won."""


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
    """Two targets of one revision. Neither overwrites the other: a coordinator obeys whichever it read first."""


class Quarantined(GiveUp):
    """A payload that cannot be read. Lambda, after its retries, puts it into the dead-letter queue with this reason."""
