"""A generation (group of workers between two changes of membership), and the choice of the next members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dyntrain.training.protocol.messages import Position
from dyntrain.training.session.generation.origin import Origin


@dataclass(frozen=True)
class Member:
    """A worker that belongs to a generation.

    The index in `Generation.members` is the member's number, which may differ from its rank in ps-lite.
    """

    instance_id: str
    joined_epoch: int  # epoch in which the member joined
    joined_at: float  # seconds since 1970


@dataclass(frozen=True)
class Generation:
    number: int  # counts the job's generations
    members: tuple[Member, ...]
    position: Position  # where the generation starts
    source: str  # member from which the other members get the state

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(member.instance_id for member in self.members)


@dataclass(frozen=True)
class Limits:
    min_workers: int
    max_workers: int


class SettlementReason(Enum):
    """Reason for a decision on the next generation's members."""

    NO_TARGET = "the controller has not published a target yet"
    UNCHANGED = "the members are those that the target wants"
    CHANGED = "the target wants other members, and they are ready"
    BELOW_MINIMUM = "fewer wanted workers are ready than the minimum"
    ONE_STAYS = "no member is wanted any more; one stays until the next boundary, to hand the state over to the joiners"
    ABOVE_MAXIMUM = "more workers are ready than the maximum; the later ones wait"
    NO_GROUP = "no base node holds blank ps-lite processes; the change waits for the next boundary"


class Cause(Enum):
    """Reason why a new generation (group of workers) is formed."""

    START = "the job starts"
    COMMIT = "the job goes on from a commit"
    SAFE_STATE = "the job goes on from the state that its workers kept at their last boundary"
    LOSS = "a worker was lost"
    CHANGE = "the target wants other members"


def cause_of(previous: Collection[str], holders: Collection[str], leaving: Collection[str], origin: Origin) -> Cause:
    """Determine the reason why a new generation (group of workers) is formed.

    Members of the `previous` generation that neither hold the state nor leave have been lost, even if their node joins
    with a new process.
    """
    if not holders:
        return Cause.SAFE_STATE if origin.safe else Cause.COMMIT if origin.commit else Cause.START
    return Cause.CHANGE if set(previous) <= {*holders, *leaving} else Cause.LOSS


def describe_cause(cause: Cause, changed: Collection[str], causes: Mapping[str, str]) -> str:
    """Describe the cause in words.

    The words are the target's reasons for the instances in `changed`, or without such reasons the cause's own text.
    """
    cause_counts = Counter(causes[instance_id] for instance_id in changed if instance_id in causes)
    if cause is not Cause.CHANGE or not cause_counts:
        return cause.value
    return ", ".join(text if len(changed) == 1 else f"{count} {text}" for text, count in cause_counts.items())


@dataclass(frozen=True)
class Settlement:
    """A decision on the next generation's members.

    The field `members` lists the survivors first, or is None if the job must pause.
    """

    members: tuple[str, ...] | None  # None if the job must pause
    reason: SettlementReason  # why these members were chosen


def settle(
    current: Sequence[str],
    standing: Collection[str],
    target: Sequence[str] | None,
    limits: Limits,
    group_ready: bool,
    intact: bool = True,
) -> Settlement:
    """Decide the membership at a boundary: workers in `current` have arrived there, and workers in `standing` can join.

    Remaining members keep their order in the generation, and joiners follow in the target's order. If no ps-lite
    processes are ready for a new group (not `group_ready`), the present members continue. If all members are to leave
    at once, the first member stays for one more generation, so that the state survives. An empty `current` means that
    the job starts or restarts. If a member is lost (not `intact`), the present group cannot continue, so without
    `group_ready` the job pauses.
    """
    unchanged_members = tuple(current) if current and intact else None
    if target is None:
        return Settlement(unchanged_members, SettlementReason.NO_TARGET)
    survivors = [instance_id for instance_id in current if instance_id in target]
    joiners = [instance_id for instance_id in target if instance_id in standing and instance_id not in survivors]
    if len(survivors) + len(joiners) < limits.min_workers:
        return Settlement(None, SettlementReason.BELOW_MINIMUM)
    state_keeper = [] if survivors else list(current[:1])
    wanted_members = [*survivors, *state_keeper, *joiners]
    members = tuple(wanted_members[: limits.max_workers])
    if members == unchanged_members:
        return Settlement(
            members,
            SettlementReason.ABOVE_MAXIMUM if len(wanted_members) > len(members) else SettlementReason.UNCHANGED,
        )
    if not group_ready:
        return Settlement(unchanged_members, SettlementReason.NO_GROUP)
    return Settlement(members, SettlementReason.ONE_STAYS if state_keeper else SettlementReason.CHANGED)
