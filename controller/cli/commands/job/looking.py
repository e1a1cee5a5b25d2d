"""The commands `dyntrain job list`, `status`, `logs` and `stop`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.options import output_options, width_of_terminal
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.text.words import ago, printable
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.cli.commands.job.jobs import JobState


@click.command("list", epilog="Examples:\n\n\b\n  dyntrain job list\n  dyntrain job list --json")
@output_options("a list of objects", "as many columns as the terminal has room for", "all there are")
def job_list(output: str) -> None:  # `dyntrain job list`
    """List all jobs that run, and all jobs that ended in the last 90 days."""
    with errors_on_one_line():
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs
        from dyntrain.controller.cli.text.tables import Column, table

        ports, launcher = connect_jobs()
        records = sorted((job.record for job in ports.records.all()), key=lambda record: -record.since)
        phases_and_reasons: dict[str, tuple[str, str]] = {
            record.name: (record.state, record.reason) for record in records
        }
        if elastic_names := [record.name for record in records if record.elastic and not record.ended]:
            from dyntrain.controller.cli.commands.job.elastic import elastic_job_states

            phases_and_reasons |= elastic_job_states(ports, launcher, elastic_names)
    if output == "json":
        json_rows = [
            {**record.model_dump(mode="json"), "phase": phases_and_reasons[record.name][0]} for record in records
        ]
        click.echo(json.dumps(json_rows, indent=1))
        return
    columns = [Column("JOB", 0), Column("STATE", 0), Column("NODES", 1), Column("TYPE", 2), Column("SINCE", 1)]
    columns.append(Column("REASON", 3, words=True))
    now, width = time.time(), None if output == "wide" else width_of_terminal()
    rows = [
        [record.name, job_phase, str(record.nodes), record.instance_type, ago(record.since, now), reason]
        for record in records
        for job_phase, reason in [phases_and_reasons[record.name]]
    ]
    for line in table(columns, [[printable(cell) for cell in row] for row in rows], width):
        click.echo(line)


@click.command(epilog="Examples:\n\n\b\n  dyntrain job status mnist\n  dyntrain job status mnist --json")
@click.argument("name")
@output_options("one object", "what a person wants to know", "with all that is recorded of it")
def status(name: str, output: str) -> None:  # `dyntrain job status`
    """Show the state of the job NAME and of each node."""
    with errors_on_one_line():
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs, read_state, stored_job

        ports, launcher = connect_jobs()
        if stored_job(ports, name).record.elastic:
            from dyntrain.controller.cli.commands.job.elastic import job_status_text

            click.echo(job_status_text(ports, launcher, name, output))
            return
        job_state = read_state(ports, launcher, name)
    click.echo(json.dumps(_job_fields(job_state), indent=1) if output == "json" else "\n".join(_job_lines(job_state)))
    if output == "wide":
        for field, value in job_state.record.model_dump(mode="json").items():
            click.echo(printable(f"  {field}: {json.dumps(value)}"))


def _job_fields(job_state: JobState) -> dict[str, Any]:
    machine_rows = [{**asdict(machine), "code": job_state.codes.get(machine.rank)} for machine in job_state.machines]
    exit_fields = None if job_state.verdict is None else job_state.verdict._asdict()
    return {
        **job_state.record.model_dump(mode="json"),
        "phase": job_state.phase,
        "machines": machine_rows,
        "exit": exit_fields,
    }


def _job_lines(job_state: JobState) -> list[str]:
    record = job_state.record
    reason_text = f": {printable(job_state.reason)}" if job_state.reason else ""
    lines = [
        f"{record.name} {job_state.phase}{reason_text}",
        f"  attempt {record.attempt}, launched {ago(record.since, time.time())}, at most {record.max_hours:g} hours",
        f"  s3://{record.bucket}/{record.name}/artifacts/",
    ]
    for machine in job_state.machines:
        exit_code = job_state.codes.get(machine.rank)
        end_text = (
            f", exit code {exit_code}"
            if exit_code is not None
            else ", has ended"
            if machine.rank in job_state.codes
            else ""
        )
        lines.append(f"  rank {machine.rank}  {machine.instance}  {machine.address or '-'}  {machine.state}{end_text}")
    if job_state.verdict is not None and job_state.verdict.tail:
        lines.append(f"  the last lines of rank {job_state.verdict.rank}:")
        lines += [f"    {printable(line)}" for line in job_state.verdict.tail.splitlines()]
    return lines


@click.command(epilog="Examples:\n\n\b\n  dyntrain job logs mnist -f\n  dyntrain job logs mnist --rank 1")
@click.argument("name")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what comes, until the job ends.")
@click.option("--rank", type=click.IntRange(0), help="Only of this node.")
def logs(name: str, following: bool, rank: int | None) -> None:  # `dyntrain job logs`
    """Print log lines of the job NAME's nodes from CloudWatch, including terminated nodes."""
    with errors_on_one_line():
        from dyntrain.controller.adapters.aws import Clients
        from dyntrain.controller.adapters.logs import CloudWatchLogs
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs, read_state, stored_job
        from dyntrain.controller.cli.commands.job.log_lines import JobLog

        ports, launcher = connect_jobs()
        record = stored_job(ports, name).record
        if record.elastic:
            raise GiveUp(
                f"the job {name} runs on a cluster of its own: `dyntrain logs {name}` shows what its workers wrote"
            )
        if rank is not None and rank >= record.nodes:
            raise GiveUp(f"there is no rank {rank}: the job {name} has ranks 0 to {record.nodes - 1}")
        job_log = JobLog(CloudWatchLogs(Clients(attempts=2)), record, rank)
        line_count = _print_new_lines(job_log)
        while following:
            has_ended = read_state(ports, launcher, name).record.ended
            time.sleep(2.0)
            line_count += _print_new_lines(job_log)
            if has_ended:
                break
        if not line_count and not following:
            raise GiveUp(f"CloudWatch has no log lines of {name} yet; the machines may still be starting")


def _print_new_lines(log: Any) -> int:
    line_count = 0
    for line in log.next():
        click.echo(f"{line.stream.rpartition('_')[2]}  {printable(line.text.expandtabs())}")
        line_count += 1
    return line_count


@click.command(epilog="Examples:\n\n\b\n  dyntrain job stop mnist\n  dyntrain job stop mnist --now")
@click.argument("name")
@click.option(
    "--now", "at_once", is_flag=True, help="End the machines at once, unsaved; those of a cluster always are."
)
def stop(name: str, at_once: bool) -> None:  # `dyntrain job stop`
    """Stop the job NAME. Unless --now is given, the nodes of a job that is not elastic save the job's artifacts before
    termination. For an elastic job the CloudFormation stack is deleted. The code of an elastic job and the volume with
    the committed training state are kept.
    """
    with errors_on_one_line():
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs, stored_job
        from dyntrain.controller.cli.commands.job.jobs import stop as stop_job

        ports, launcher = connect_jobs()
        record = stored_job(ports, name).record
        say_where(f"job {name}", launcher.clients)
        if record.elastic:
            from dyntrain.controller.cli.commands.job.elastic import stop_elastic_job

            stop_elastic_job(ports, launcher, name)
            return
        result_text = stop_job(ports, launcher, name, at_once=at_once)
    click.echo(result_text)
