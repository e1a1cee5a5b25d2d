"""What is left to do on a node, derived from what is there. Pure.

Each step leaves something that can be seen: on the host, on the shared volume, or in the bootstrap's own memory, which a reboot loses. What is seen
is not done again, so a life that was cut short anywhere goes on with what is left, in the same order. `python -m node_bootstrap plan` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from node_bootstrap.marker import Verdict


class Step(Enum):
    """In the order in which they are done."""

    SWEEP = "sweep"
    IDENTITY = "identity"
    CONFIG = "config"
    VOLUME = "volume"
    ENVIRONMENT = "environment"
    PACKAGE = "package"
    PREPARE = "prepare-data"
    MARKER = "marker"
    REPORT = "report"
    SIGNAL = "signal"
    SUPERVISE = "supervise"


class Reason(Enum):
    STRAYS = "processes of an earlier life may still run"
    NOBODY = "the metadata service has not been asked yet who this node is"
    UNREAD = "the cluster's configuration has not been read yet"
    UNMOUNTED = "the shared volume cannot be used"
    ENVIRONMENT = "the profile or the workers file is missing, or says something else"
    PACKAGES = "a package that the node's programs need is not installed"
    UNSEEN = "it cannot be seen before an earlier step is done"
    UNMARKED = "the marker comes with success"
    UNREPORTED = "the controller is not told yet that this attempt is prepared"
    FAILURE = "the controller is not told yet that prepare-data failed"
    UNSIGNALLED = "no coordinator is told yet that the node is ready"
    IN_SERVICE = "nobody has retired the node"


@dataclass(frozen=True)
class Observed:
    """What is there at one moment; None where that cannot be seen before an earlier step is done.

    `marker` is None also where the script cannot be read. `scripted`: there is a script to run. `failed`: its attempts are used up in this life.
    """

    swept: bool = False
    identity: bool = False
    config: bool = False
    volume: bool | None = None
    environment: bool | None = None
    package: bool | None = None
    scripted: bool = True
    marker: Verdict | None = None
    failed: bool = False
    reported: bool = False
    signalled: bool = False
    retired: bool = False


@dataclass(frozen=True)
class Planned:
    step: Step
    reason: Reason | Verdict


def plan(seen: Observed) -> tuple[Planned, ...]:
    """The steps that are left, in order. A node that could not be prepared reports that and stays, but signals nobody: it must not train."""
    prepared = seen.marker is Verdict.COUNTS
    left: list[tuple[Step, bool, Reason | Verdict]] = [
        (Step.SWEEP, not seen.swept, Reason.STRAYS),
        (Step.IDENTITY, not seen.identity, Reason.NOBODY),
        (Step.CONFIG, not seen.config, Reason.UNREAD),
        (Step.VOLUME, not seen.volume, _unless_unseen(seen.volume, Reason.UNMOUNTED)),
        (Step.ENVIRONMENT, not seen.environment, _unless_unseen(seen.environment, Reason.ENVIRONMENT)),
        (Step.PACKAGE, not seen.package, _unless_unseen(seen.package, Reason.PACKAGES)),
        (Step.PREPARE, seen.scripted and not prepared and not seen.failed, seen.marker or Reason.UNSEEN),
        (Step.MARKER, not prepared and not seen.failed, Reason.UNMARKED),
        (Step.REPORT, not seen.reported, Reason.FAILURE if seen.failed else Reason.UNREPORTED),
        (Step.SIGNAL, not seen.signalled and not seen.failed, Reason.UNSIGNALLED),
        (Step.SUPERVISE, not seen.retired, Reason.IN_SERVICE),
    ]
    return tuple(Planned(step, reason) for step, needed, reason in left if needed)


def done(left: tuple[Planned, ...]) -> tuple[Step, ...]:
    """The steps that a plan leaves out."""
    return tuple(step for step in Step if step not in {planned.step for planned in left})


def _unless_unseen(seen: bool | None, reason: Reason) -> Reason:
    return Reason.UNSEEN if seen is None else reason
