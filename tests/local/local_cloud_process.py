"""Runs a toy cloud in a process of its own, for tests that kill it: prints one JSON line with what it started, then
waits.

python local_cloud_process.py FOLDER PORT
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from dyntrain.controller.local.signals import EndedBySignal, raise_on_signals
from local_toycloud import QUIET, ToyCloud, toy_cloud

BOOTSTRAP = "#!/bin/sh\nexec python3 -m dyntrain.node_bootstrap run\n"


def machine_options(child: Path) -> tuple[str, ...]:
    return (sys.executable, str(child))


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, of whoever runs the tests, would keep it from us
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    options = replace(
        QUIET, machines=True, machine_command=machine_options(Path(__file__).parent / "local_machine_program.py")
    )
    try:
        with raise_on_signals() as ending, toy_cloud(folder, options, port=port) as cloud:
            toy = ToyCloud(cloud, folder)
            instance_id = toy.run_instance(UserData=BOOTSTRAP)
            pids = cloud.state_dir / "machines" / instance_id / "pids"
            while not pids.exists() or not pids.read_text():
                time.sleep(0.02)
            started = [cloud.machine_pid(instance_id), *cloud.handler_pids, *map(int, pids.read_text().split())]
            sys.stdout.write(
                json.dumps({"endpoint": cloud.endpoint, "state_dir": str(cloud.state_dir), "pids": started}) + "\n"
            )
            sys.stdout.flush()
            ending.wait()
    except EndedBySignal:
        sys.exit(0)


if __name__ == "__main__":
    main()
