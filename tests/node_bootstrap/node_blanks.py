"""A stand-in for ps-lite's processes: forked like the true ones, and written down."""

from __future__ import annotations

import json
import sys

from node_fakes import World

FORKS = """
import json, os, pathlib, sys, time
from dyntrain.training.host.forkserver import serve
here = pathlib.Path(sys.argv[1])

def become(role, environment):
    with open(here / "roles", "a") as file:
        entry = {"role": role, "environment": environment, "pid": os.getpid(), "server": os.getppid()}
        entry["host"] = os.environ.get("DMLC_NODE_HOST")
        file.write(json.dumps(entry) + "\\n")
    while not (here / f"end-{os.getpid()}").exists():
        time.sleep(0.02)
    sys.exit(int((here / f"end-{os.getpid()}").read_text()))

time.sleep(float((here / "slow").read_text()) if (here / "slow").exists() else 0)
sys.exit(serve(become))
"""


def base_world(here: World) -> World:
    path = here.directory / "blank.py"
    path.write_text(FORKS)
    here.blank = (sys.executable, str(path), str(here.directory))
    return here


def roles(here: World) -> list[dict[str, object]]:
    path = here.directory / "roles"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
