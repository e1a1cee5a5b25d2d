"""Errors of a node, grouped by the reaction of the caller.

    NodeError
    |-- RetryLater        retry after a pause; the caller limits the retries
    |-- GiveUp            wrong configuration: retrying cannot help, a person must act
    `-- Interrupted       no fault: the node received a stop signal

Each message names the failure and its remedy, and contains no secret.
"""

from __future__ import annotations

# Exit codes, for systemd or a launcher; the numbers are those of sysexits.h.
RETIRED = 0
FAULT = 70
TRY_AGAIN = 75
CONFIGURATION = 78


class NodeError(Exception):
    """Base of all errors of this package."""


class RetryLater(NodeError):
    """A service or program failed, and may work later."""


class GiveUp(NodeError):
    """The configuration is wrong."""


class Interrupted(NodeError):
    """A stop signal arrived during an operation."""


class MetadataUnavailable(RetryLater):
    """The instance metadata service gave no usable answer within the allowed attempts."""


class OnlyMetadataV1(GiveUp):
    """The metadata service issues no session tokens, but answers without one."""


class Unassigned(RetryLater):
    """No tag names the instance's cluster yet."""


class ServiceUnavailable(RetryLater):
    """An AWS call failed, or its response lacks a required part."""


class ProgramFailed(RetryLater):
    """A program on the host could not be started, was killed, or took too long."""


class InvalidConfiguration(GiveUp):
    """A parameter has an invalid value; the message names the field."""


class AlreadyRunning(RetryLater):
    """Another bootstrap of the same node is alive, or is still stopping."""
