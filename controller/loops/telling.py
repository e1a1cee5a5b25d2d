"""Announce what a decision has changed, in log and metrics; write the audit trail and what each node was
announced as.
"""

from __future__ import annotations

import logging

from dyntrain.controller.core.history.trail import AlarmRaised, Entry, Nominated, StatusChanged
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.acks import NO_ACKS, Acks, Announcement, Effect
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.ports import Ports

log = logging.getLogger("dyntrain.converge")


def tell(ports: Ports, rules: Rules, decision: Decision) -> tuple[list[Entry], dict[str, Acks]]:
    """Announce the changes. Returns the trail's entries, and by instance the announced status to remember."""
    cluster, now = rules.policy.cluster, ports.clock()
    trail: list[Entry] = []
    acks: dict[str, Acks] = {}
    for change in decision.changes:
        changed = StatusChanged(
            instance=change.instance,
            before=change.before,
            after=change.standing.line,
            detail=change.standing.detail,
        )
        joined = {cluster: Effect(at=now)} if change.standing.in_job else {}
        acks[change.instance] = Acks(status=Announcement(at=now, value=change.standing.line), joined=joined)
        trail.append(changed)
        log.info("status", extra={"cluster": cluster, "revision": decision.membership.revision, **changed.fields()})
    for alarm in decision.alarms:
        ports.metrics.count(alarm.metric, cluster, len(alarm.instances))
        log.error(
            alarm.metric, extra={"cluster": cluster, "instances": " ".join(alarm.instances), "problem": alarm.sentence}
        )
        for instance in alarm.instances:
            trail.append(AlarmRaised(kind=alarm.metric, instance=instance, detail=alarm.sentence))
            alarmed = Acks(alarms={alarm.metric: Announcement(at=now, value=alarm.about[instance])})
            acks[instance] = acks.get(instance, NO_ACKS).join(alarmed)
    for entry in decision.metered:
        trail.append(entry)
        billed = Acks(billed=Announcement(at=now, value=entry.line))
        acks[entry.instance] = acks.get(entry.instance, NO_ACKS).join(billed)
    if (nomination := decision.nomination) is not None:
        nominated = Nominated(
            coordinator=nomination.coordinator or "", term=nomination.term, detail=nomination.reason.value
        )
        trail.append(nominated)
        log.warning("nomination", extra={"cluster": cluster, **nominated.fields()})
    return trail, acks
