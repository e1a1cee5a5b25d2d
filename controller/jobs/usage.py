"""How long a job's machines ran, according to their objects in the bucket and to EC2. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.job_files import (
    alive_key,
    client_token,
    output_key,
    plan_key,
    rank_exit_key,
    run_id,
)
from dyntrain.controller.core.history.bill import Span
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine


@dataclass(frozen=True)
class Usage:
    """The machine hours of a job. `silent`: launches that probably happened and left no trace, as (attempt, rank)."""

    spans: tuple[Span, ...]
    silent: tuple[tuple[int, int], ...]


def usage(record: JobRecord, signs: Mapping[int, Mapping[str, float]], machines: Iterable[Machine]) -> Usage:
    """Compute the usage. `signs` has for each attempt the times when its objects were last written.

    EC2 shows a machine for about an hour after its end. After that, the machine's last write counts as its end, which
    came at most a minute later, unless the machine hung.
    """
    shown_machines = {(machine.token, machine.rank): machine for machine in machines}
    spans: list[Span] = []
    silent: list[tuple[int, int]] = []
    for attempt in range(1, record.attempt + 1):
        run, written = run_id(record.submission, attempt), signs.get(attempt, {})
        for rank in range(record.nodes):
            machine = shown_machines.get((client_token(run), rank))
            span = _span(record, run, rank, machine, written)
            if span is not None:
                spans.append(span)
            elif attempt < record.attempt or record.state != "LAUNCHING":
                silent.append((attempt, rank))
    return Usage(tuple(spans), tuple(silent))


def _span(record: JobRecord, run: str, rank: int, machine: Machine | None, written: Mapping[str, float]) -> Span | None:
    keys = (key(record.name, run, rank) for key in (alive_key, rank_exit_key, output_key))
    write_times = [written[key] for key in keys if key in written]
    is_running = machine is not None and machine.state in ("pending", "running")
    if not write_times and not is_running:
        return None
    launched = machine.launched if machine is not None else None
    began = launched or written.get(plan_key(record.name, run)) or min(write_times, default=record.since)
    ended = None if is_running else max(*write_times, began)
    instance = machine.instance if machine is not None else f"{run} rank {rank}"
    return Span(instance, f"rank {rank}", record.instance_type, "spot" if record.spot else "on-demand", began, ended)
