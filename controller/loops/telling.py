"""Announces the changes of a decision in log and metrics, and makes audit entries and acknowledgements of them."""

from __future__ import annotations

import logging

from dyntrain.controller.core.history.trail import AlarmRaised, Entry, Nominated, StatusChanged
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.acks import NO_ACKS, Acks, Announcement, Effect
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.ports import Ports

log = logging.getLogger("dyntrain.converge")


def announce_changes(ports: Ports, rules: Rules, decision: Decision) -> tuple[list[Entry], dict[str, Acks]]:
    """Announce the changes. Returns entries for the audit trail, and by instance the announced status to store."""
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
            alarm_acks = Acks(alarms={alarm.metric: Announcement(at=now, value=alarm.about[instance])})
            acks[instance] = acks.get(instance, NO_ACKS).join(alarm_acks)
    for entry in decision.metered:
        trail.append(entry)
        billing_acks = Acks(billed=Announcement(at=now, value=entry.line))
        acks[entry.instance] = acks.get(entry.instance, NO_ACKS).join(billing_acks)
    if (nomination := decision.nomination) is not None:
        nominated = Nominated(
            coordinator=nomination.coordinator or "", term=nomination.term, detail=nomination.reason.value
        )
        trail.append(nominated)
        log.warning("nomination", extra={"cluster": cluster, **nominated.fields()})
    return trail, acks
