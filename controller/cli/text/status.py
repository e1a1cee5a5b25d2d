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
SLOW_FACTOR = 1.5
# The least delay of a slow worker: processes that share a processor wait for tens of milliseconds.
SLOW_SECONDS = 0.05
END_STATES = ("finished", "failed")
MAX_NAMES = 5  # instances named in a line
INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}\b")


def cluster_lines(
    cluster: dict[str, Any],
    now: float | None,
    width: int | None,
    *,
    wide: bool = False,
    colour: bool = False,
    log_of: Callable[[str], str] | None = None,
) -> list[str]:
    """The lines of text about a cluster. `now` None: times are absolute, for a file that is read later."""
    columns = WIDE_COLUMNS if wide else COLUMNS
    rows = [_row(node, cluster, now, wide=wide) for node in cluster["nodes"]]
    colours = [COLOURS.get(node["status"]) for node in cluster["nodes"]]
    table_lines = table(columns, rows, width, colours, colour=colour) if rows else ["no nodes"]
    return [*map(printable, headline(cluster, now)), *table_lines, *map(printable, failure_lines(cluster, log_of))]


def failure_lines(cluster: dict[str, Any], log_of: Callable[[str], str] | None = None) -> list[str]:
    """The script's exception, the reason of the job's failure, and the place of the log; empty without a failure.
    `log_of(instance)` says where that worker's log is; None: on EC2.
    """
    job = cluster["job"]
    if job is None:
        return []
    exception_lines = ["the script raised:", *shown_lines(job["traceback"])] if job["traceback"] else []
    if job["state"] != "failed":
        return exception_lines
    output = [] if exception_lines else shown_lines(job["reason"])[1:]
    failed_instance = (INSTANCE.findall(job["reason"]) or [job.get("coordinator") or ""])[-1]
    log = (log_of or _log_on_ec2(cluster["cluster"]))(failed_instance)
    return [
        *exception_lines,
        *(["its script's last output:", *output] if output else []),
        f"the job failed: {in_brief(job['reason'])}; {log}",
    ]


def _log_on_ec2(cluster: str) -> Callable[[str], str]:
    def log_place(instance: str) -> str:
        path = f", on {instance} /var/log/dyntrain/worker.log" if instance else ""
        return f"its log: `dyntrain logs {cluster}`{path}"

    return log_place


def _row(node: dict[str, Any], cluster: dict[str, Any], now: float | None, *, wide: bool) -> Sequence[str]:
    role = "master" if node["base"] and node["master"] else "base" if node["base"] else "elastic"
    coordinator = ", coordinator" if node["instance"] == cluster["target"]["coordinator"] else ""
    last_line = node["detail"].strip().splitlines()[-1:]
    wide_cells = (_shown(node["private_ip"]), _shown(node.get("step_seconds"))) if wide else ()
    return (
        node["instance"],
        role + coordinator,
        node["status"],
        _shown(node["rank"]),
        _shown(node["generation"]),
        moment(node["since"]) if now is None else ago(node["since"], now),
        *wide_cells,
        printable(": ".join([node["sentence"], *last_line])),
    )


def headline(cluster: dict[str, Any], now: float | None = None) -> list[str]:
    """A few lines about the job; the first line has the job's state. `now`: see `cluster_lines`."""
    doubt = cluster.get("unverified")
    unverified = [f"  identities are unverified, {doubt}: `dyntrain doctor` says what that means"] if doubt else []
    return [
        *_job_lines(cluster, now),
        *_end_lines(cluster),
        *_remaining_lines(cluster),
        *_closing_lines(cluster),
        *_hold_lines(cluster),
        *unverified,
    ]


def _hold_lines(cluster: dict[str, Any]) -> list[str]:
    """Lines on groups whose launches are stopped, with the last line of the failure and the remedy."""
    lines: list[str] = []
    for hold in cluster.get("held") or []:
        last_line = hold["reason"].strip().splitlines()[-1:]
        lines += [
            f"  {hold['group']} launches no more: {hold['times']} nodes in a row failed alike: {''.join(last_line)}",
            "  mend prepare-data on the volume, and it goes on; or by hand: aws autoscaling resume-processes "
            f"--auto-scaling-group-name {hold['group']} --scaling-processes Launch",
        ]
    return lines


def _end_lines(cluster: dict[str, Any]) -> list[str]:
    """Lines about a job that is over: the instances that ended with the job, and how to start the job again."""
    ended = cluster.get("ended") or []
    ellipsis = ", ..." if len(ended) > MAX_NAMES else ""
    plural = "elastic instances were" if len(ended) > 1 else "elastic instance was"
    line = f"  {len(ended)} {plural} ended with the job: {', '.join(ended[:MAX_NAMES])}{ellipsis} (--gone lists them)"
    return [*([line] if ended else []), *([f"  {cluster['again']}"] if cluster.get("again") else [])]


def _job_lines(cluster: dict[str, Any], now: float | None) -> list[str]:
    job, name, target = cluster["job"], cluster["cluster"], cluster["target"]
    if job is None:
        return [f"{name}: no job has reported; target revision {target['revision']}"]
    epochs = f"epoch {job['epoch']}" + (f"/{job['epochs']}" if job["epochs"] else "")
    if target["term"] and target["coordinator"] is None and not job["alive"] and job["state"] not in END_STATES:
        return [f"{name}: job {job['job']} paused at {epochs}: no base node is left to run the coordinator"]
    silence = "" if job["alive"] or job["state"] in END_STATES else f" (silent {_since(job['heard_at'], now)})"
    progress = job["progress"] or {}
    parts = [f"{name}: job {job['job']} {job['state']}{silence}"]
    if progress.get("fraction") is not None and job["state"] != "finished":
        parts.append(f"{100 * progress['fraction']:.1f} % done")
    if progress.get("eta_seconds") and job["alive"]:
        parts.append(f"about {span(progress['eta_seconds'])} left")
    # no rate before the first report, or while no worker trains
    rate = f"{job['samples_per_second']:.0f} samples/s, " if job["samples_per_second"] else ""
    lines = [
        ", ".join(parts),
        f"  {epochs}, step {job['step']}, {job['workers']} workers, {rate}"
        f"generation {job['generation']}, target revision {target['revision']}",
    ]
    if progress.get("metrics"):
        lines.append(f"  {metrics_text(progress['metrics'])} (epoch {progress['metrics_epoch']})")
    if progress.get("silenced"):
        silenced = (f"{code} ({how})" for code, how in sorted(progress["silenced"].items()))
        lines.append(f"  checks of the script that are silenced: {', '.join(silenced)}")
    if progress.get("stalled") and job["alive"] and job["state"] not in END_STATES:
        lines.append(f"  stalled: {progress['stalled']}")
    slow = stragglers({node["instance"]: node.get("step_seconds") for node in cluster["nodes"]})
    lines += [
        f"  slow: {instance} takes {seconds:.3g} s for its own part of a step, {factor:.1f} times the median"
        for instance, seconds, factor in slow
    ]
    lines += [
        f"  the coordinator cannot reach {address['what']}, {_since(address['since'], now)}: {address['reason']}"
        for address in job.get("unreachable", [])
    ]
    if job["reason"] and job["state"] != "failed":
        lines.append(f"  {job['reason']}")
    return lines


def _remaining_lines(cluster: dict[str, Any]) -> list[str]:
    stays = cluster.get("stays")
    if not stays or not stays["instances"]:
        return []
    count = stays["instances"]
    base_nodes = f"{count} base instance{'s run' if count > 1 else ' runs'} on"
    costs = f", which costs ${stays['hourly']:,.2f} an hour" if stays["hourly"] is not None else ", which costs money"
    end_text = f", until about {moment(stays['until'])} (after_job={stays['after_job']})" if stays.get("until") else ""
    return [f"  {base_nodes}{costs}{end_text}"]


def _closing_lines(cluster: dict[str, Any]) -> list[str]:
    """Lines on a closed cluster: the reason, and how to start its base nodes again."""
    closing = cluster.get("closing")
    if not closing:
        return []
    if not closing["rests"]:
        return [f"  the cluster is being closed: {closing['sentence']}"]
    start = f"aws ec2 start-instances --instance-ids {' '.join(closing['stopped'])}"
    launch = f"set the desired capacity of {', '.join(closing['ended'])} as it was"
    go_on = start if closing["stopped"] else launch if closing["ended"] else "launch base nodes"
    return [f"  the cluster is closed: {closing['sentence']}", f"  to go on: {go_on}"]


def _since(time: float, now: float | None) -> str:
    return f"since {moment(time)}" if now is None else f"for {span(now - time)}"


def stragglers(step_seconds: Mapping[str, float | None]) -> list[tuple[str, float, float]]:
    """Workers whose own part of a step takes more than SLOW_FACTOR times the median and SLOW_SECONDS longer, the
    slowest first: (instance, seconds, factor). All other workers wait for these.
    """
    measured = {instance: seconds for instance, seconds in step_seconds.items() if seconds}
    if len(measured) < 2:
        return []
    typical = median_low(measured.values())
    limit = max(SLOW_FACTOR * typical, typical + SLOW_SECONDS)
    slow = [(instance, seconds, seconds / typical) for instance, seconds in measured.items() if seconds > limit]
    return sorted(slow, key=lambda worker: -worker[1])


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)
