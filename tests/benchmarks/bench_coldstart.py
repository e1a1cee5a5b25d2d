"""The cost of a first event: import of the deployed zip and handling of one event, without the bare interpreter.

As in Lambda, the runtime's boto3 is compiled and the zip's folder is read-only, so only bytecode in the zip is used.
Figures are medians of rounds in which the bare interpreter, the libraries and every handler take turns, each in a
process of its own, so that other load on the machine affects all equally.

Milliseconds depend on the machine. The bound is on the processor time of the event, divided by that of the bare import
of what every handler needs: pydantic, Chalice's runtime and Powertools from the same zip, and the runtime's boto3.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import yaml
from dyntrain.controller.local.pace import patient
from figures import Figure, at_most, unbounded, write
from moto.server import ThreadedMotoServer

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 11
FIRST_EVENT_BOUND = 2.2
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
LIBRARIES = """
import sys
sys.path[:0] = sys.argv[1].split(":")
import json, boto3, chalice.app, aws_lambda_powertools, pydantic
json.load(sys.stdin)
"""


class Cost(NamedTuple):
    """The cost of a process: wall-clock seconds until its end, and processor seconds."""

    seconds: float
    processor: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.processor - other.processor)

    @classmethod
    def median(cls, costs: list[Cost]) -> Cost:
        return cls(*(statistics.median(column) for column in zip(*costs[1:], strict=True)))


INTAKE = ("on_tag_change", "on_lifecycle", "on_instance_state", "on_node_report")


def main(out: Path) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        subprocess.run(
            [sys.executable, ROOT / ".chalice" / "package.py", "--out", package], check=True, timeout=patient(200)
        )
        results = coldstart(package)
    write(out, "coldstart", results)
    times = [unbounded(f"coldstart.{name}_ms", value) for name, value in results["ms_over_bare"].items()]
    ratios = [
        at_most(f"coldstart.{name}_over_libraries", value, FIRST_EVENT_BOUND)
        if name in INTAKE
        else unbounded(f"coldstart.{name}_over_libraries", value)
        for name, value in results["over_libraries"].items()
    ]
    return [*times, *ratios, at_most("coldstart.zip_mb", results["zip_mb"], 4.0)]


def coldstart(package: Path) -> dict[str, Any]:
    """Measure the numbers of build/bench/coldstart.json."""
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
            runs: dict[str, list[Cost]] = {}
            for _ in range(ROUNDS + 1):  # the first reads the files from the disk
                runs.setdefault("", []).append(_cost(PROGRAM, [], {}, environment))
                runs.setdefault("libraries", []).append(_cost(LIBRARIES, [path], {}, environment))
                for name, event in _events().items():
                    runs.setdefault(name, []).append(_cost(PROGRAM, [path, name], event, environment))
    finally:
        server.stop()
    bare = Cost.median(runs.pop(""))
    above = {name: Cost.median(costs) - bare for name, costs in runs.items()}
    libraries = above["libraries"].processor
    return {
        "ms_over_bare": {name: round(1000 * cost.seconds) for name, cost in above.items()},
        "over_libraries": {name: round(above[name].processor / libraries, 2) for name in _events()},
        "zip_mb": round(archive.stat().st_size / 1e6, 3),
    }


def _cloud(endpoint: str) -> dict[str, str]:
    session = boto3.Session("x", "x", region_name="us-east-1")
    resources = yaml.safe_load((ROOT / ".chalice" / "resources.yaml").read_text(encoding="utf-8"))["Resources"]
    properties = resources["FactsTable"]["Properties"]
    table = {
        key: properties[key] for key in ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
    }
    session.client("dynamodb", endpoint_url=endpoint).create_table(TableName="facts", **table)
    session.client("ssm", endpoint_url=endpoint).put_parameter(
        Name="/dyntrain/demo/policy", Type="String", Value='{"cluster": "demo"}'
    )
    keys = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return {"PATH": os.environ["PATH"], "DYNTRAIN_TABLE": "facts", **keys}


def _cost(program: str, arguments: list[str], event: dict[str, Any], environment: dict[str, str]) -> Cost:
    started, before = time.perf_counter(), _of_children()
    command = [sys.executable, "-I", "-S", "-B", "-c", program, *arguments]
    done = subprocess.run(
        command,
        input=json.dumps(event),
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[-1:]} failed: {done.stderr[-2000:]}")
    return Cost(time.perf_counter() - started, _of_children() - before)


def _of_children() -> float:
    """Processor seconds of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _events() -> dict[str, dict[str, Any]]:
    """One event for each kind of function; all intake handlers have the same code behind different rules."""
    tag = {"changed-tag-keys": [KEY], "service": "ec2", "resource-type": "instance", "version": 1, "tags": {KEY: ""}}
    hook = {
        "AutoScalingGroupName": "demo-workers",
        "LifecycleHookName": "launch",
        "EC2InstanceId": INSTANCE,
        "LifecycleActionToken": "t-1",
    }
    launch = {**hook, "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}
    node = {
        "cluster": "demo",
        "instance_id": INSTANCE,
        "private_ip": "10.0.0.1",
        "attempt": 1,
        "outcome": "prepared",
        "at": 1.0,
    }
    key = {"pk": {"S": "tick#demo"}, "sk": {"S": "tick"}}
    tick = {"NewImage": {**key, "wake": {"BOOL": True}}, "Keys": key}
    record = {"eventName": "INSERT", "eventID": "1", "awsRegion": "r", "eventSourceARN": "s", "dynamodb": tick}
    return {
        "on_tag_change": _event("aws.tag", "Tag Change on Resource", tag),
        "on_lifecycle": _event("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", launch),
        "on_instance_state": _event(
            "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": INSTANCE, "state": "running"}
        ),
        "on_node_report": _event("dyntrain.node", "Node Prepared", node),
        "converge": {"Records": [record]},
        "resync": _event("aws.events", "Scheduled Event", {}),
        "rebalance": _event("aws.events", "Scheduled Event", {}),
    }


def _event(source: str, kind: str, detail: dict[str, Any]) -> dict[str, Any]:
    head = {"version": "0", "id": "e", "account": "123456789012", "region": "us-east-1", "time": "2026-01-02T03:04:05Z"}
    resources = [f"arn:aws:ec2:us-east-1:123456789012:instance/{INSTANCE}"]
    return {**head, "source": source, "detail-type": kind, "resources": resources, "detail": detail}
