"""Computes how long a job's machines ran, from the machines' objects in the S3 bucket and from EC2's descriptions.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.job_files import alive_key, client_token, output_key, plan_key, rank_exit_key, run_id
from dyntrain.controller.core.history.bill import Span
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


@dataclass(frozen=True)
class Usage:  # of a job's machines
    """The times during which each of a job's machines ran."""

    spans: tuple[Span, ...]  # the time during which each machine ran
    silent: tuple[tuple[int, int], ...]  # (attempt, rank) of probable launches that left no trace


def compute_usage(record: JobRecord, signs: Mapping[int, Mapping[str, float]], machines: Iterable[Machine]) -> Usage:
    """Compute how long each of the job's machines ran. `signs` contains, for each attempt of the job, the time of the
    last write of each S3 object, by the object's key.

    EC2 shows a terminated machine for about an hour. If a machine no longer runs, the machine's last write to the
    bucket is taken as the end of the machine. A machine that does not hang writes to the bucket every minute, so the
    machine ends at most a minute later than computed.
    """
    machines_by_launch = {(machine.token, machine.rank): machine for machine in machines}
    machine_spans: list[Span] = []
    traceless_launches: list[tuple[int, int]] = []
    for attempt in range(1, record.attempt + 1):
        attempt_run, write_times_by_key = run_id(record.submission, attempt), signs.get(attempt, {})
        for rank in range(record.nodes):
            machine = machines_by_launch.get((client_token(attempt_run), rank))
            span = _machine_span(record, attempt_run, rank, machine, write_times_by_key)
            if span is not None:
                machine_spans.append(span)
            elif attempt < record.attempt or record.state != "LAUNCHING":
                traceless_launches.append((attempt, rank))
    return Usage(tuple(machine_spans), tuple(traceless_launches))


def _machine_span(
    record: JobRecord, run: str, rank: int, machine: Machine | None, write_times_by_key: Mapping[str, float]
) -> Span | None:
    object_keys = (make_key(record.name, run, rank) for make_key in (alive_key, rank_exit_key, output_key))
    write_times = [write_times_by_key[key] for key in object_keys if key in write_times_by_key]
    is_running = machine is not None and machine.state in ("pending", "running")
    if not write_times and not is_running:
        return None
    launched_at = machine.launched if machine is not None else None
    began_at = (
        launched_at or write_times_by_key.get(plan_key(record.name, run)) or min(write_times, default=record.since)
    )
    ended_at = None if is_running else max(*write_times, began_at)
    instance_name = machine.instance if machine is not None else f"{run} rank {rank}"
    return Span(
        instance_name, f"rank {rank}", record.instance_type, "spot" if record.spot else "on-demand", began_at, ended_at
    )
