"""The text of `dyntrain status`, made from the data of `query.summary`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Any

from dyntrain.controller.cli.text.tables import Column, table
from dyntrain.controller.cli.text.words import COLOURS, ago, in_brief, metrics_text, moment, printable, span
from dyntrain.controller.contract.plain_text import shown_lines

COLUMNS = (
    Column("instance", 0),
    Column("role", 3),
    Column("status", 0),
    Column("rank", 4),
    Column("generation", 6),
    Column("since", 2),
    Column("reason", 1, words=True),
)
WIDE_COLUMNS = (*COLUMNS[:-1], Column("address", 5), Column("step seconds", 5), COLUMNS[-1])
SLOW_FACTOR = 1.5  # a slow worker takes this many times the median duration of a step
# The least delay of a slow worker: processes that share a processor wait for tens of milliseconds.
SLOW_SECONDS = 0.05  # more than the median duration of a step
END_STATES = ("finished", "failed")  # of a job
MAX_NAMES = 5  # at most so many instances are named in a line
INSTANCE_PATTERN = re.compile(r"\bi-[0-9a-f]{8,17}\b")


def cluster_lines(
    cluster: dict[str, Any],
    now: float | None,
    width: int | None,
    *,
    wide: bool = False,
    colour: bool = False,
    log_of: Callable[[str], str] | None = None,
) -> list[str]:
    """The text lines about a cluster. If `now` is None, the lines contain absolute times, for output to a file that is
    read later.
    """
    columns = WIDE_COLUMNS if wide else COLUMNS
    rows = [_node_row(node, cluster, now, wide=wide) for node in cluster["nodes"]]
    colours = [COLOURS.get(node["status"]) for node in cluster["nodes"]]
    table_lines = table(columns, rows, width, colours, colour=colour) if rows else ["no nodes"]
    return [*map(printable, headline(cluster, now)), *table_lines, *map(printable, failure_lines(cluster, log_of))]


def failure_lines(cluster: dict[str, Any], log_of: Callable[[str], str] | None = None) -> list[str]:
    """Text lines with the script's exception, the reason of the job's failure and the place of the log. The result is
    empty without a failure. The function `log_of` returns the place of an instance's worker log, by default on EC2.
    """
    job = cluster["job"]
    if job is None:
        return []
    exception_lines = ["the script raised:", *shown_lines(job["traceback"])] if job["traceback"] else []
    if job["state"] != "failed":
        return exception_lines
    output_lines = [] if exception_lines else shown_lines(job["reason"])[1:]
    failed_instance = (INSTANCE_PATTERN.findall(job["reason"]) or [job.get("coordinator") or ""])[-1]
    log_text = (log_of or _log_on_ec2(cluster["cluster"]))(failed_instance)
    return [
        *exception_lines,
        *(["its script's last output:", *output_lines] if output_lines else []),
        f"the job failed: {in_brief(job['reason'])}; {log_text}",
    ]


def _log_on_ec2(cluster: str) -> Callable[[str], str]:
    def log_location(instance: str) -> str:
        path_text = f", on {instance} /var/log/dyntrain/worker.log" if instance else ""
        return f"its log: `dyntrain logs {cluster}`{path_text}"

    return log_location


def _node_row(node: dict[str, Any], cluster: dict[str, Any], now: float | None, *, wide: bool) -> Sequence[str]:
    role = "master" if node["base"] and node["master"] else "base" if node["base"] else "elastic"
    coordinator_text = ", coordinator" if node["instance"] == cluster["target"]["coordinator"] else ""
    last_detail_line = node["detail"].strip().splitlines()[-1:]
    wide_cells = (_text_or_dash(node["private_ip"]), _text_or_dash(node.get("step_seconds"))) if wide else ()
    return (
        node["instance"],
        role + coordinator_text,
        node["status"],
        _text_or_dash(node["rank"]),
        _text_or_dash(node["generation"]),
        moment(node["since"]) if now is None else ago(node["since"], now),
        *wide_cells,
        printable(": ".join([node["sentence"], *last_detail_line])),
    )


def headline(cluster: dict[str, Any], now: float | None = None) -> list[str]:
    """Text lines about the cluster's job, beginning with the job's state. If `now` is None, the lines contain absolute
    times.
    """
    identity_problem = cluster.get("unverified")
    identity_lines = (
        [f"  identities are unverified, {identity_problem}: `dyntrain doctor` says what that means"]
        if identity_problem
        else []
    )
    return [
        *_job_lines(cluster, now),
        *_end_lines(cluster),
        *_remaining_node_lines(cluster),
        *_closing_lines(cluster),
        *_hold_lines(cluster),
        *identity_lines,
    ]


def _hold_lines(cluster: dict[str, Any]) -> list[str]:
    """Text lines about Auto Scaling groups whose launches are suspended, with the remedy and the last line of the
    error.
    """
    hold_lines: list[str] = []
    for hold in cluster.get("held") or []:
        last_line = hold["reason"].strip().splitlines()[-1:]
        hold_lines += [
            f"  {hold['group']} launches no more: {hold['times']} nodes in a row failed alike: {''.join(last_line)}",
            "  mend prepare-data on the volume, and it goes on; or by hand: aws autoscaling resume-processes "
            f"--auto-scaling-group-name {hold['group']} --scaling-processes Launch",
        ]
    return hold_lines


def _end_lines(cluster: dict[str, Any]) -> list[str]:
    """Text lines about a job that is over: the instances that ended with the job, and how to start the job again."""
    ended_instances = cluster.get("ended") or []
    ellipsis = ", ..." if len(ended_instances) > MAX_NAMES else ""
    instances_text = "elastic instances were" if len(ended_instances) > 1 else "elastic instance was"
    names_text = ", ".join(ended_instances[:MAX_NAMES]) + ellipsis
    ended_line = f"  {len(ended_instances)} {instances_text} ended with the job: {names_text} (--gone lists them)"
    return [*([ended_line] if ended_instances else []), *([f"  {cluster['again']}"] if cluster.get("again") else [])]


def _job_lines(cluster: dict[str, Any], now: float | None) -> list[str]:
    job, cluster_name, target = cluster["job"], cluster["cluster"], cluster["target"]
    if job is None:
        return [f"{cluster_name}: no job has reported; target revision {target['revision']}"]
    epoch_text = f"epoch {job['epoch']}" + (f"/{job['epochs']}" if job["epochs"] else "")
    if target["term"] and target["coordinator"] is None and not job["alive"] and job["state"] not in END_STATES:
        return [f"{cluster_name}: job {job['job']} paused at {epoch_text}: no base node is left to run the coordinator"]
    silence_text = (
        "" if job["alive"] or job["state"] in END_STATES else f" (silent {_since_text(job['heard_at'], now)})"
    )
    progress = job["progress"] or {}
    first_line_parts = [f"{cluster_name}: job {job['job']} {job['state']}{silence_text}"]
    if progress.get("fraction") is not None and job["state"] != "finished":
        first_line_parts.append(f"{100 * progress['fraction']:.1f} % done")
    if progress.get("eta_seconds") and job["alive"]:
        first_line_parts.append(f"about {span(progress['eta_seconds'])} left")
    # no rate before the first report, or while no worker trains
    rate_text = f"{job['samples_per_second']:.0f} samples/s, " if job["samples_per_second"] else ""
    job_lines = [
        ", ".join(first_line_parts),
        f"  {epoch_text}, step {job['step']}, {job['workers']} workers, {rate_text}"
        f"generation {job['generation']}, target revision {target['revision']}",
    ]
    if progress.get("metrics"):
        job_lines.append(f"  {metrics_text(progress['metrics'])} (epoch {progress['metrics_epoch']})")
    if progress.get("silenced"):
        silenced_checks = (f"{code} ({silenced_by})" for code, silenced_by in sorted(progress["silenced"].items()))
        job_lines.append(f"  checks of the script that are silenced: {', '.join(silenced_checks)}")
    if progress.get("stalled") and job["alive"] and job["state"] not in END_STATES:
        job_lines.append(f"  stalled: {progress['stalled']}")
    slow_workers = stragglers({node["instance"]: node.get("step_seconds") for node in cluster["nodes"]})
    job_lines += [
        f"  slow: {instance} takes {seconds:.3g} s for its own part of a step, {factor:.1f} times the median"
        for instance, seconds, factor in slow_workers
    ]
    job_lines += [
        f"  the coordinator cannot reach {address['what']}, {_since_text(address['since'], now)}: {address['reason']}"
        for address in job.get("unreachable", [])
    ]
    if job["reason"] and job["state"] != "failed":
        job_lines.append(f"  {job['reason']}")
    return job_lines


def _remaining_node_lines(cluster: dict[str, Any]) -> list[str]:
    remaining_nodes = cluster.get("stays")
    if not remaining_nodes or not remaining_nodes["instances"]:
        return []
    node_count = remaining_nodes["instances"]
    base_nodes_text = f"{node_count} base instance{'s run' if node_count > 1 else ' runs'} on"
    cost_text = (
        f", which costs ${remaining_nodes['hourly']:,.2f} an hour"
        if remaining_nodes["hourly"] is not None
        else ", which costs money"
    )
    end_text = (
        f", until about {moment(remaining_nodes['until'])} (after_job={remaining_nodes['after_job']})"
        if remaining_nodes.get("until")
        else ""
    )
    return [f"  {base_nodes_text}{cost_text}{end_text}"]


def _closing_lines(cluster: dict[str, Any]) -> list[str]:
    """Text lines about a closed cluster, with the reason and with advice on how to start base nodes again."""
    closing = cluster.get("closing")
    if not closing:
        return []
    if not closing["rests"]:
        return [f"  the cluster is being closed: {closing['sentence']}"]
    start_command = f"aws ec2 start-instances --instance-ids {' '.join(closing['stopped'])}"
    launch_advice = f"set the desired capacity of {', '.join(closing['ended'])} as it was"
    restart_advice = start_command if closing["stopped"] else launch_advice if closing["ended"] else "launch base nodes"
    return [f"  the cluster is closed: {closing['sentence']}", f"  to go on: {restart_advice}"]


def _since_text(time: float, now: float | None) -> str:
    return f"since {moment(time)}" if now is None else f"for {span(now - time)}"


def stragglers(step_seconds: Mapping[str, float | None]) -> list[tuple[str, float, float]]:
    """The slow workers as (instance, seconds a step, factor of the median), slowest first. A worker is slow if its own
    part of a step takes more than SLOW_FACTOR times the median, and also more than the median plus SLOW_SECONDS.
    """
    measured_seconds = {instance: seconds for instance, seconds in step_seconds.items() if seconds}
    if len(measured_seconds) < 2:
        return []
    median_seconds = median_low(measured_seconds.values())
    limit_seconds = max(SLOW_FACTOR * median_seconds, median_seconds + SLOW_SECONDS)
    slow_workers = [
        (instance, seconds, seconds / median_seconds)
        for instance, seconds in measured_seconds.items()
        if seconds > limit_seconds
    ]
    return sorted(slow_workers, key=lambda worker: -worker[1])


def _text_or_dash(value: Any) -> str:
    return "-" if value is None else str(value)
