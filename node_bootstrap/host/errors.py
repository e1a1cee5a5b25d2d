"""What can go wrong on a node, split by what the caller does about it.

    NodeError
    |-- RetryLater        try the same again after a pause; bounded by the caller
    |-- GiveUp            wrong configuration: trying again cannot help, a person must act
    `-- Interrupted       no fault: the node was told to stop

Each message names the thing that failed and what to do about it, and never a secret.
"""

from __future__ import annotations

# What the program's end tells systemd or a launcher; the numbers are of sysexits.h.
RETIRED = 0
FAULT = 70
TRY_AGAIN = 75
CONFIGURATION = 78


class NodeError(Exception):
    """Base of all errors of this package."""


class RetryLater(NodeError):
    """The outside world did not answer as it should, and may do so later."""


class GiveUp(NodeError):
    """The configuration is wrong."""


class Interrupted(NodeError):
    """A stop signal arrived while something was under way."""


class MetadataUnavailable(RetryLater):
    """The instance metadata service gave no usable answer within the attempts allowed."""


class OnlyMetadataV1(GiveUp):
    """The metadata service hands out no tokens, but answers without one."""


class Unassigned(RetryLater):
    """No tag tells which cluster the instance belongs to (yet)."""


class ServiceUnavailable(RetryLater):
    """An AWS call failed, or its answer is missing what must be there."""


class ProgramFailed(RetryLater):
    """A program of the host could not be started, was killed, or took too long."""


class InvalidConfiguration(GiveUp):
    """A parameter does not hold what it must; the message names the field."""


class AlreadyRunning(RetryLater):
    """Another bootstrap of the same node is alive, or is still stopping."""
