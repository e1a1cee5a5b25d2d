"""Fails if the demo's report shows a lost sample, statuses out of order, or a removed instance that still runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())
order = ["ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED"]
left_instances = [leave["instance"] for leave in report["leaves"]]
checks = {
    "an epoch before, between and after the changes": len(report["epochs"]) >= 5,
    "all changes are within the audited epochs": report["epochs_audited"]
    >= max((leave["left_epoch"] or 0 for leave in report["leaves"]), default=0),
    "every epoch took every sample": len({epoch["samples"] for epoch in report["epochs"]}) == 1,
    "no sample lost or doubled": (report["samples_lost"], report["samples_doubled"]) == (0, 0),
    "two instances joined": len(report["joins"]) == 2 and all(join["joined_at"] for join in report["joins"]),
    "joined after they were prepared": all(
        join["requested_at"] < join["prepared_at"] < join["joined_at"] for join in report["joins"]
    ),
    "both left": sorted(left_instances) == sorted(join["instance"] for join in report["joins"]),
    "both were terminated": all(leave["terminated_at"] for leave in report["leaves"])
    and report["instances_left_running"] == [],
    "statuses in order": all(report["statuses"][instance] == order for instance in left_instances),
    "none was seen to go back": all(
        sorted(seen, key=order.index) == seen
        for seen in ([entry["status"] for entry in history] for history in report["statuses_seen"].values())
    ),
    "survivors kept their processes": report["survivor_pids_unchanged"] is True,
    "four pauses were measured": len(report["pauses_seconds"]) == 4,
    "it learned": report["final_val_accuracy"] > 0.8,
}
failed = [name for name, holds in checks.items() if not holds]
sys.stdout.write("".join(f"{'FAILED' if name in failed else 'ok    '} {name}\n" for name in checks))
sys.exit(bool(failed))
