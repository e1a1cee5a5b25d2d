"""The data of a cluster's page, and the changes from one state to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.cli.text.status import failure_lines, headline

State = Mapping[str, Any]  # JSON in parts, since only changed parts are sent again


def cluster_state(summary: dict[str, Any]) -> dict[str, Any]:
    """The state, from the data and sentences of `dyntrain status`. No part of it changes with time alone."""
    job = summary["job"]
    if job is not None:
        job = {name: value for name, value in job.items() if name != "heard_seconds_ago"}
    return {
        "problem": "",
        "cluster": summary["cluster"],
        "job": job,
        "told": headline(summary),
        "failure": failure_lines(summary),
        "target": summary["target"],
        "nodes": {row["instance"]: row for row in summary["nodes"]},
    }


def unread_state(name: str, problem: str) -> dict[str, Any]:
    """The state of a cluster that cannot be read."""
    known = {"job": None, "target": None, "nodes": dict[str, Any]()}
    return {"problem": problem, "cluster": name, "told": [], "failure": [], **known}


def changes(before: State | None, after: State) -> dict[str, Any]:
    """The changed parts, and for `nodes` the changed rows: `{"set": {instance: row}, "gone": [instance]}`.

    Without `before` the whole state, with `"whole": true`: the page forgets its earlier state.
    """
    if before is None:
        return {"whole": True, **{part: value for part, value in after.items() if part != "nodes"}, **_rows({}, after)}
    changed = {part: value for part, value in after.items() if part != "nodes" and before.get(part) != value}
    return {**changed, **_rows(before.get("nodes", {}), after)}


def _rows(known_rows: Mapping[str, Any], after: State) -> dict[str, Any]:
    rows = after.get("nodes", {})
    new = {instance: row for instance, row in rows.items() if known_rows.get(instance) != row}
    gone = [instance for instance in known_rows if instance not in rows]
    return {"nodes": {"set": new, "gone": gone}} if new or gone else {}


def card(state: State) -> dict[str, Any]:
    """The cluster's entry in the list of clusters."""
    counts: dict[str, int] = {}
    for row in state["nodes"].values():
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    return {
        "cluster": state["cluster"],
        "problem": state["problem"],
        "job": state["job"],
        "told": state["told"],
        "counts": dict(sorted(counts.items())),
    }
