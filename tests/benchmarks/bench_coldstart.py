"""What a first event costs: import of the deployed zip and the first event handled, above the bare interpreter, in processes of its own.

As in Lambda: the runtime's boto3 is compiled, the zip's folder cannot be written to, so only bytecode that the zip brings is used. Medians of
rounds in which the bare interpreter and every handler take turns, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import boto3
from figures import Figure, at_most, told, write
from moto.server import ThreadedMotoServer

from controller.local.table import load_resources, table_request

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 11
KEY = "demo-aws-dl-cfn-elastic-worker"
INSTANCE = "i-0123456789abcdef0"
PROGRAM = """
import sys
if len(sys.argv) > 1:
    sys.path[:0] = sys.argv[1].split(":")
    import importlib, json
    class Context:
        function_name = sys.argv[2]; aws_request_id = "r"; invoked_function_arn = "a"; memory_limit_in_mb = 256
    getattr(importlib.import_module("app"), sys.argv[2])(json.load(sys.stdin), Context())
"""


INTAKE = ("on_tag_change", "on_lifecycle", "on_instance_state", "on_node_report")


def main(out: Path) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        subprocess.run([sys.executable, ROOT / ".chalice" / "package.py", "--out", package], check=True, timeout=200)
        found = coldstart(package)
    write(out, "coldstart", found)
    events = found["first_event_ms_over_bare"]
    lines = [at_most(f"coldstart.{name}", value, 450.0) if name in INTAKE else told(f"coldstart.{name}", value) for name, value in events.items()]
    return [*lines, at_most("coldstart.zip_mb", found["zip_mb"], 4.0)]


def coldstart(package: Path) -> dict[str, Any]:
    """The numbers of build/bench/coldstart.json."""
    archive = package / "deployment.zip"
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would print every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(folder)
            environment = _cloud(f"http://{host}:{port}")
            path = f"{folder}:{Path(boto3.__file__).parents[1]}"
            runs: dict[str, list[float]] = {}
            for _ in range(ROUNDS + 1):  # the first reads the files from the disk
                runs.setdefault("", []).append(_seconds([], {}, environment))
                for name, event in _events().items():
                    runs.setdefault(name, []).append(_seconds([path, name], event, environment))
    finally:
        server.stop()
    bare = statistics.median(runs.pop("")[1:])
    events = {name: round(1000 * (statistics.median(seconds[1:]) - bare)) for name, seconds in runs.items()}
    return {"first_event_ms_over_bare": events, "zip_mb": round(archive.stat().st_size / 1e6, 3)}


def _cloud(endpoint: str) -> dict[str, str]:
    session = boto3.Session("x", "x", region_name="us-east-1")
    table = table_request(load_resources(ROOT / ".chalice" / "resources.yaml"), "facts")
    session.client("dynamodb", endpoint_url=endpoint).create_table(**table)
    session.client("ssm", endpoint_url=endpoint).put_parameter(Name="/dyntrain/demo/policy", Type="String", Value='{"cluster": "demo"}')
    keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    return {"PATH": os.environ["PATH"], "DYNTRAIN_TABLE": "facts", **keys}


def _seconds(arguments: list[str], event: dict[str, Any], environment: dict[str, str]) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, *arguments]
    done = subprocess.run(command, input=json.dumps(event), env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[-1:]} failed: {done.stderr[-2000:]}")
    return time.perf_counter() - started


def _events() -> dict[str, dict[str, Any]]:
    """One of each kind that a function gets; every intake handler is the same code behind another rule."""
    tag = {"changed-tag-keys": [KEY], "service": "ec2", "resource-type": "instance", "version": 1, "tags": {KEY: ""}}
    hook = {"AutoScalingGroupName": "demo-workers", "LifecycleHookName": "launch", "EC2InstanceId": INSTANCE, "LifecycleActionToken": "t-1"}
    launch = {**hook, "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}
    node = {"cluster": "demo", "instance_id": INSTANCE, "private_ip": "10.0.0.1", "attempt": 1, "outcome": "prepared", "at": 1.0}
    key = {"pk": {"S": "tick#demo"}, "sk": {"S": "tick"}}
    tick = {"NewImage": {**key, "wake": {"BOOL": True}}, "Keys": key}
    record = {"eventName": "INSERT", "eventID": "1", "awsRegion": "r", "eventSourceARN": "s", "dynamodb": tick}
    return {
        "on_tag_change": _event("aws.tag", "Tag Change on Resource", tag),
        "on_lifecycle": _event("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", launch),
        "on_instance_state": _event("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": INSTANCE, "state": "running"}),
        "on_node_report": _event("dyntrain.node", "Node Prepared", node),
        "converge": {"Records": [record]},
        "resync": _event("aws.events", "Scheduled Event", {}),
        "rebalance": _event("aws.events", "Scheduled Event", {}),
    }


def _event(source: str, kind: str, detail: dict[str, Any]) -> dict[str, Any]:
    head = {"version": "0", "id": "e", "account": "123456789012", "region": "us-east-1", "time": "2026-01-02T03:04:05Z"}
    resources = [f"arn:aws:ec2:us-east-1:123456789012:instance/{INSTANCE}"]
    return {**head, "source": source, "detail-type": kind, "resources": resources, "detail": detail}
