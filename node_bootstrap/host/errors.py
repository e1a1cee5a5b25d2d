"""Errors of a node, split by what the caller does about them.

    NodeError
    |-- RetryLater        retry the same after a pause; bounded by the caller
    |-- GiveUp            wrong configuration: retrying cannot help, a person must act
    `-- Interrupted       no fault: the node was told to stop

Each message names what failed and what to do about it, and never a secret.
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
    """The outside world did not answer as it should, and may do so later."""


class GiveUp(NodeError):
    """The configuration is wrong."""


class Interrupted(NodeError):
    """A stop signal arrived while something was under way."""


class MetadataUnavailable(RetryLater):
    """The instance metadata service gave no usable answer within the allowed attempts."""


class OnlyMetadataV1(GiveUp):
    """The metadata service issues no session tokens, but answers without one."""


class Unassigned(RetryLater):
    """No tag names the instance's cluster (yet)."""


class ServiceUnavailable(RetryLater):
    """An AWS call failed, or its response lacks a required part."""


class ProgramFailed(RetryLater):
    """A program of the host could not be started, was killed, or took too long."""


class InvalidConfiguration(GiveUp):
    """A parameter has an invalid value; the message names the field."""


class AlreadyRunning(RetryLater):
    """Another bootstrap of the same node is alive, or is still stopping."""
