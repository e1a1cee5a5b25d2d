"""Errors of a node's program, grouped by how the caller reacts to them.

    NodeError
    |-- RetryLater        the caller retries after a pause, a limited number of times
    |-- GiveUp            wrong configuration: retrying cannot help, a person must act
    `-- Interrupted       the node received a stop signal: nothing has failed.

Each error message names the failure and what to do about it, and contains no secret.
"""

from __future__ import annotations

# Exit codes, for systemd or a launcher; the numbers are those of sysexits.h.
RETIRED = 0  # exit code of a node that is no longer needed
FAULT = 70  # exit code after an unexpected error
TRY_AGAIN = 75  # exit code after which systemd starts the program again
CONFIGURATION = 78  # exit code if a person must correct the configuration


class NodeError(Exception):
    """Base class of all errors of a node's program."""


class RetryLater(NodeError):
    """A service or a program failed; a later attempt may succeed."""


class GiveUp(NodeError):
    """The configuration is wrong, so retrying cannot help: a person must correct it."""


class Interrupted(NodeError):
    """An operation was stopped because the node received a stop signal."""


class MetadataUnavailable(RetryLater):
    """The instance metadata service gave no usable answer within the allowed attempts."""


class OnlyMetadataV1(GiveUp):
    """The instance metadata service issues no session tokens (version 2), but answers requests without a token."""


class NoClusterTag(RetryLater):
    """The instance has no tag yet that names its cluster."""


class ServiceUnavailable(RetryLater):
    """An AWS call failed, or its response lacks a required part."""


class ProgramFailed(RetryLater):
    """A program on the host could not be started, was killed, or took too long."""


class InvalidConfiguration(GiveUp):
    """A field of the configuration has an invalid value; the message names the field."""


class AlreadyRunning(RetryLater):
    """Another process already runs this node's program."""
