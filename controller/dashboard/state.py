"""The state of a cluster that the page shows, and the changes from one state to the next state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.cli.text.status import failure_lines, headline

State = Mapping[str, Any]  # JSON in parts, since only changed parts are sent again


def cluster_state(summary: dict[str, Any]) -> dict[str, Any]:
    """Build the cluster's state for the page from the data and sentences of `dyntrain status`. No part of the state
    changes only because time passes.
    """
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
    """The state that the page shows for a cluster that cannot be read."""
    empty_parts = {"job": None, "target": None, "nodes": dict[str, Any]()}
    return {"problem": problem, "cluster": name, "told": [], "failure": [], **empty_parts}


def changes(previous_state: State | None, new_state: State) -> dict[str, Any]:
    """Return the parts of the state that have changed. For the part `nodes`, only the changed rows are returned, as
    `{"set": {instance: row}, "gone": [instance]}`.

    If `previous_state` is None, returns the whole state with `"whole": true`, so that the page replaces its earlier
    state.
    """
    if previous_state is None:
        return {
            "whole": True,
            **{part: value for part, value in new_state.items() if part != "nodes"},
            **_changed_rows({}, new_state),
        }
    changed_parts = {
        part: value for part, value in new_state.items() if part != "nodes" and previous_state.get(part) != value
    }
    return {**changed_parts, **_changed_rows(previous_state.get("nodes", {}), new_state)}


def _changed_rows(known_rows: Mapping[str, Any], new_state: State) -> dict[str, Any]:
    node_rows = new_state.get("nodes", {})
    new_rows = {instance: row for instance, row in node_rows.items() if known_rows.get(instance) != row}
    gone_instances = [instance for instance in known_rows if instance not in node_rows]
    return {"nodes": {"set": new_rows, "gone": gone_instances}} if new_rows or gone_instances else {}


def card(state: State) -> dict[str, Any]:  # of one cluster
    """The cluster's entry in the page's list of clusters."""
    status_counts: dict[str, int] = {}
    for node_row in state["nodes"].values():
        status_counts[node_row["status"]] = status_counts.get(node_row["status"], 0) + 1
    return {
        "cluster": state["cluster"],
        "problem": state["problem"],
        "job": state["job"],
        "told": state["told"],
        "counts": dict(sorted(status_counts.items())),
    }
