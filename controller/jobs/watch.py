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


def watch_jobs(ports: JobPorts) -> dict[str, int]:
    """Check all jobs that may still change. An error about a single job is logged. Raises ControllerError only if no
    job could be checked.
    """
    live_jobs = ports.records.live_jobs()
    machines = ports.machines.of_runs([stored_job.record.token for stored_job in live_jobs]) if live_jobs else ()
    terminated_count = 0
    for stored_job in live_jobs:
        try:
            decision = decision_of(ports, stored_job, machines)
            _apply(ports, stored_job, decision)
            terminated_count += len(decision.terminate)
        except ControllerError as error:
            log.error("a job could not be checked", extra={"job": stored_job.record.name, "problem": str(error)})
    return {"jobs": len(live_jobs), "terminated": terminated_count}


def decision_of(ports: JobPorts, stored: StoredJob, machines: Sequence[Machine]) -> Decision:
    """Decide about a job from the job's record, its machines in EC2 and its objects in the bucket. Nothing is
    written.
    """
    record, now = stored.record, ports.clock()
    if record.ended:
        return decide(record, machines, None, {}, now)
    ended_ranks = set(range(record.nodes)) - {
        machine.rank for machine in machines if machine.living and machine.token == record.token
    }
    exit_codes = ports.results.exit_codes(record, ended_ranks) if record.state == "RUNNING" else {}
    return decide(record, machines, ports.results.verdict(record), exit_codes, now)


def _apply(ports: JobPorts, stored: StoredJob, decision: Decision) -> None:
    if decision.terminate:
        result = ports.machines.terminate(decision.terminate)
        log_fields = {"job": stored.record.name, "instances": list(decision.terminate), "refused": dict(result.refused)}
        log.warning("machines of a job are ended: %s", decision.record.reason, extra=log_fields)
    if decision.record != stored.record or decision.over:
        ports.records.put(StoredJob(decision.record, stored.version), over=decision.over)
