"""Checks all jobs periodically, and does what their machines failed to do themselves.

1. gather: the live records, the instances of their runs, the nodes' objects in the bucket
2. decide: `verdict.decide`
3. apply: end instances, then write the record, so that a failed action is decided again in the next period
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.verdict import Decision, Machine, decide

log = logging.getLogger("dyntrain.jobs")


def watch(ports: JobPorts) -> dict[str, int]:
    """Check all jobs. Raises ControllerError only if no job could be checked."""
    live = ports.records.live()
    machines = ports.machines.of_runs([stored.record.token for stored in live]) if live else ()
    ended = 0
    for stored in live:
        try:
            decision = decision_of(ports, stored, machines)
            _apply(ports, stored, decision)
            ended += len(decision.terminate)
        except ControllerError as error:
            log.error("a job could not be checked", extra={"job": stored.record.name, "problem": str(error)})
    return {"jobs": len(live), "terminated": ended}


def decision_of(ports: JobPorts, stored: StoredJob, machines: Sequence[Machine]) -> Decision:
    """Decide about a job by its record, EC2 and the bucket. Writes nothing."""
    record, now = stored.record, ports.clock()
    if record.ended:
        return decide(record, machines, None, {}, now)
    ended_ranks = set(range(record.nodes)) - {
        machine.rank for machine in machines if machine.living and machine.token == record.token
    }
    codes = ports.results.codes(record, ended_ranks) if record.state == "RUNNING" else {}
    return decide(record, machines, ports.results.verdict(record), codes, now)


def _apply(ports: JobPorts, stored: StoredJob, decision: Decision) -> None:
    if decision.terminate:
        batch = ports.machines.terminate(decision.terminate)
        context = {"job": stored.record.name, "instances": list(decision.terminate), "refused": dict(batch.refused)}
        log.warning("machines of a job are ended: %s", decision.record.reason, extra=context)
    if decision.record != stored.record or decision.over:
        ports.records.put(StoredJob(decision.record, stored.version), over=decision.over)
