"""Announces the changes of a decision in the log and in metrics, and builds audit-trail entries and acknowledgements
for the changes.
"""

from __future__ import annotations

import logging

from dyntrain.controller.core.history.trail import AlarmRaised, Entry, Nominated, StatusChanged
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.acks import NO_ACKS, Acks, Announcement, Effect
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.ports import Ports

log = logging.getLogger("dyntrain.converge")


def announce_changes(ports: Ports, rules: Rules, decision: Decision) -> tuple[list[Entry], dict[str, Acks]]:
    """Announce the decision's changes in the log and in metrics. Returns the audit-trail entries to store, and the
    acknowledgements to store for each instance.
    """
    cluster, now = rules.policy.cluster, ports.clock()
    trail_entries: list[Entry] = []
    acks_by_instance: dict[str, Acks] = {}
    for change in decision.changes:
        status_change = StatusChanged(
            instance=change.instance, before=change.before, after=change.standing.line, detail=change.standing.detail
        )
        joined_effects = {cluster: Effect(at=now)} if change.standing.in_job else {}
        acks_by_instance[change.instance] = Acks(
            status=Announcement(at=now, value=change.standing.line), joined=joined_effects
        )
        trail_entries.append(status_change)
        log.info(
            "status", extra={"cluster": cluster, "revision": decision.membership.revision, **status_change.fields()}
        )
    for alarm in decision.alarms:
        ports.metrics.count(alarm.metric, cluster, len(alarm.instances))
        log.error(
            alarm.metric, extra={"cluster": cluster, "instances": " ".join(alarm.instances), "problem": alarm.sentence}
        )
        for instance_id in alarm.instances:
            trail_entries.append(AlarmRaised(kind=alarm.metric, instance=instance_id, detail=alarm.sentence))
            alarm_acks = Acks(alarms={alarm.metric: Announcement(at=now, value=alarm.about[instance_id])})
            acks_by_instance[instance_id] = acks_by_instance.get(instance_id, NO_ACKS).join(alarm_acks)
    for billing_entry in decision.metered:
        trail_entries.append(billing_entry)
        billing_acks = Acks(billed=Announcement(at=now, value=billing_entry.line))
        acks_by_instance[billing_entry.instance] = acks_by_instance.get(billing_entry.instance, NO_ACKS).join(
            billing_acks
        )
    if (nomination := decision.nomination) is not None:
        nomination_entry = Nominated(
            coordinator=nomination.coordinator or "", term=nomination.term, detail=nomination.reason.value
        )
        trail_entries.append(nomination_entry)
        log.warning("nomination", extra={"cluster": cluster, **nomination_entry.fields()})
    return trail_entries, acks_by_instance
