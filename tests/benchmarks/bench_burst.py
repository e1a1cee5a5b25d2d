"""1,000 tag events for 1,000 prepared nodes, each delivered twice, shuffled, on the embedded cloud; calls are counted at its endpoint.

Everything is published at once, to the real handlers in the app's processes, as the cloud runs them; changes come in the batches that are
deployed. The nodes begin as people's machines do that were prepared before anybody asked for them: their bootstrap has reported, and nothing
else is known or was ever acknowledged of them. So each node costs two writes: its event, and the acknowledgement of its status and its tag.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from figures import Figure, at_most, told, write
from moto.ssm.models import ssm_backends

from controller.adapters.aws import Clients
from controller.adapters.dynamodb import TableNodes
from controller.contract import Target
from controller.events import observe
from controller.facts import NodeFacts
from controller.local.cloud import Cloud
from controller.local.options import Options
from controller.local.table import load_resources
from controller.ports import StoredNode

CLUSTER = "demo"
KEY = f"{CLUSTER}-aws-dl-cfn-elastic-worker"
SUFFIX = KEY.removeprefix(CLUSTER)
READS = ("GetItem", "BatchGetItem", "Query")
DEADLINE = 120.0
ROOT = Path(__file__).resolve().parents[2]
SOURCE = load_resources(ROOT / ".chalice" / "resources.yaml")["Converge"]["Properties"]["Events"]["ConvergeDynamodbEventSource"]["Properties"]
WINDOW = float(SOURCE["MaximumBatchingWindowInSeconds"])
QUIET = Options(machines=False, duplicate_fraction=0.0, boot_delay=0.0, describe_lag=0.0, stream_window=WINDOW, stream_batch=SOURCE["BatchSize"])


def main(out: Path) -> list[Figure]:
    found = burst()
    write(out, "burst", found)
    bounds = {"publishes": 20, "writes": 2_200, "converged_seconds": 20.0, "tag_to_target_median_seconds": 2.0, "lost": 0}
    return [at_most(f"burst.{key}", value, bounds[key]) if key in bounds else told(f"burst.{key}", value) for key, value in found.items()]


def burst(events: int = 1000, singles: int = 7) -> dict[str, Any]:
    """The numbers of build/bench/burst.json."""
    with Cloud(resync_seconds=3600.0, options=QUIET) as cloud:
        policy = {"cluster": CLUSTER, "max_workers": events + singles + 1}
        cloud.client("ssm").put_parameter(Name=f"/dyntrain/{CLUSTER}/policy", Type="String", Value=json.dumps(policy))
        instances = _launched(cloud, events + singles)
        _prepared(cloud, instances)
        crowd, alone = instances[:events], instances[events:]
        _quiet(cloud)
        cloud.calls.clear()
        payloads = [_tagged(cloud, instance) for instance in crowd] * 2
        random.Random(7).shuffle(payloads)
        for payload in payloads:
            cloud.bus.publish(payload)
        sent = time.monotonic()
        until = sent + DEADLINE
        while (published := _target(cloud)).count < len(crowd) and time.monotonic() < until:
            time.sleep(0.2)
        mirrored = _wait_for_tags(cloud, crowd, until)
        converged = time.monotonic() - sent
        _quiet(cloud)
        calls = Counter(cloud.calls)
        single = [_single(cloud, instance) for instance in alone]
    return {
        "events": len(crowd),
        "publishes": calls["ssm", "PutParameter"],
        "writes": calls["dynamodb", "PutItem"] + calls["dynamodb", "UpdateItem"],
        "reads": sum(calls["dynamodb", name] for name in READS),
        "mutations": calls["ec2", "CreateTags"] + calls["ec2", "TerminateInstances"],
        "converged_seconds": round(converged, 2),
        "tag_to_target_median_seconds": round(statistics.median(single), 3),
        "lost": len(crowd) - min(published.count, mirrored),
    }


def _launched(cloud: Cloud, count: int) -> list[str]:
    """Straight into EC2's memory: boots and their events are no part of what is measured."""
    ec2 = cloud.account.ec2
    image = cloud.client("ec2").describe_images()["Images"][0]["ImageId"]
    reservation = ec2.run_instances(image, count, "", [], instance_type="t3.small", is_instance_type_default=False)
    return [instance.id for instance in reservation.instances]


def _prepared(cloud: Cloud, instances: list[str]) -> None:
    os.environ.update(cloud.environment)
    nodes = TableNodes(Clients(cloud.endpoint), cloud.options.table)
    for instance in instances:
        detail = {"cluster": CLUSTER, "instance_id": instance, "private_ip": "10.0.0.1", "attempt": 1, "outcome": "prepared", "at": time.time()}
        facts = observe(_envelope("dyntrain.node", "Node Prepared", instance, detail), SUFFIX)
        assert isinstance(facts, NodeFacts), facts
        nodes.put(StoredNode(facts, 0), wake=False, expires=None)


def _envelope(source: str, kind: str, resource: str, detail: dict[str, Any]) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"version": "0", "id": f"bench-{resource}", "account": "123456789012", "region": "us-east-1", "time": moment}
    return {**head, "source": source, "detail-type": kind, "resources": [resource], "detail": detail}


def _tagged(cloud: Cloud, instance: str) -> dict[str, Any]:
    detail = {"changed-tag-keys": [KEY], "service": "ec2", "resource-type": "instance", "version": 1, "tags": {KEY: ""}}
    return _envelope("aws.tag", "Tag Change on Resource", f"arn:aws:ec2:us-east-1:123456789012:instance/{instance}", detail)


def _target(cloud: Cloud) -> Target:
    """Read from the cloud's memory, so that looking is not counted as a call."""
    with cloud.account.lock:
        found = ssm_backends[cloud.account.number][cloud.account.region].get_parameter(f"/dyntrain/{CLUSTER}/target")
        return Target.model_validate_json(found.value) if found is not None else Target.of(0, ())


def _wait_for_tags(cloud: Cloud, instances: list[str], until: float) -> int:
    while True:
        with cloud.account.lock:
            tags = cloud.account.ec2.tags
            count = sum(tags.get(instance, {}).get("elastic_worker_status") == "ADD_QUEUED" for instance in instances)
        if count == len(instances) or time.monotonic() > until:
            return count
        time.sleep(0.2)


def _quiet(cloud: Cloud) -> None:
    """Nothing was called for a second."""
    before, since = -1, time.monotonic()
    until = since + DEADLINE
    while time.monotonic() < min(since + 1.0, until):
        now = sum(cloud.calls.values())
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.05)


def _single(cloud: Cloud, instance: str) -> float:
    """From one event to the target that names one member more."""
    before = _target(cloud).count
    started = time.monotonic()
    cloud.bus.publish(_tagged(cloud, instance))
    while _target(cloud).count == before:
        if time.monotonic() - started > DEADLINE:
            raise TimeoutError(f"the tag of {instance} led to no target within {DEADLINE} s")
        time.sleep(0.01)
    return time.monotonic() - started
