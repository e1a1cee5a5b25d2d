"""1,000 tag events for 1,000 prepared nodes, each delivered twice and shuffled, on the embedded cloud.

Calls are counted at the cloud's endpoint. All events are published at once to the real handlers in the app's processes,
as the cloud runs them; changes arrive in batches of the deployed size. The nodes begin like machines that were prepared
before anybody asked for them: their bootstrap has reported, and nothing else is known or acknowledged. So each node
costs two writes: its event, and the acknowledgement of its status and its tag.

Durations depend on the machine, so the bounds are on ratios: the processor time of the cloud and its handlers to that
of as many bare writes to the same table in the same run; and the time of one event beyond the stream's window to that
of a process that starts and makes a few imports.
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

import yaml
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableNodes
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.incoming.events import observe
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import Deadline, patient, seconds_of_work
from dyntrain.controller.loops.ports import StoredNode
from figures import Figure, at_most, processor_seconds, unbounded, write
from moto.ssm.models import ssm_backends

CLUSTER = "demo"
KEY = f"{CLUSTER}-aws-dl-cfn-elastic-worker"
READS = ("GetItem", "BatchGetItem", "Query")
DEADLINE = 120.0
PROCESSOR_BOUND = 6.0
SINGLE_BOUND = 7.0
ROOT = Path(__file__).resolve().parents[2]
RESOURCES = yaml.safe_load((ROOT / ".chalice" / "resources.yaml").read_text(encoding="utf-8"))["Resources"]
SOURCE = RESOURCES["Converge"]["Properties"]["Events"]["ConvergeDynamodbEventSource"]["Properties"]
WINDOW = float(SOURCE["MaximumBatchingWindowInSeconds"])
QUIET = Options(
    machines=False,
    duplicate_fraction=0.0,
    boot_delay=0.0,
    describe_lag=0.0,
    behind=0.0,
    stream_window=WINDOW,
    stream_batch=SOURCE["BatchSize"],
)


def main(out: Path) -> list[Figure]:
    results = burst()
    write(out, "burst", results)
    bounds = {
        "publishes": 20,
        "writes": 2_200,
        "processor_over_bare_writes": PROCESSOR_BOUND,
        "tag_to_target_over_a_process": SINGLE_BOUND,
        "lost": 0,
    }
    return [
        at_most(f"burst.{key}", value, bounds[key]) if key in bounds else unbounded(f"burst.{key}", value)
        for key, value in results.items()
    ]


def burst(events: int = 1000, singles: int = 7) -> dict[str, Any]:
    """Measure the numbers of build/bench/burst.json."""
    with Cloud(resync_seconds=3600.0, options=QUIET) as cloud:
        policy = {"cluster": CLUSTER, "max_workers": events + singles + 1}
        cloud.client("ssm").put_parameter(Name=f"/dyntrain/{CLUSTER}/policy", Type="String", Value=json.dumps(policy))
        instances = _launched(cloud, events + singles)
        before = _processor(cloud)
        _prepared(cloud, instances)
        bare = (_processor(cloud) - before) / len(instances)
        crowd, alone = instances[:events], instances[events:]
        _quiet(cloud)
        cloud.calls.clear()
        before = _processor(cloud)
        payloads = [_tagged(cloud, instance) for instance in crowd] * 2
        random.Random(7).shuffle(payloads)
        for payload in payloads:
            cloud.bus.publish(payload)
        sent = time.monotonic()
        until = sent + patient(DEADLINE)
        while (published := _target(cloud)).count < len(crowd) and time.monotonic() < until:
            time.sleep(0.2)
        mirrored = _wait_for_tags(cloud, crowd, until)
        converged = time.monotonic() - sent
        _quiet(cloud)
        processor = _processor(cloud) - before
        calls = Counter(cloud.calls)
        single, processes = zip(*[(_single(cloud, instance), seconds_of_work()) for instance in alone], strict=True)
    writes = calls["dynamodb", "PutItem"] + calls["dynamodb", "UpdateItem"]
    median = statistics.median(single)
    return {
        "events": len(crowd),
        "publishes": calls["ssm", "PutParameter"],
        "writes": writes,
        "reads": sum(calls["dynamodb", name] for name in READS),
        "mutations": calls["ec2", "CreateTags"] + calls["ec2", "TerminateInstances"],
        "converged_seconds": round(converged, 2),
        "processor_seconds": round(processor, 2),
        "bare_write_processor_ms": round(1000 * bare, 2),
        "processor_over_bare_writes": round(processor / (bare * writes), 2),
        "tag_to_target_median_seconds": round(median, 3),
        "process_median_seconds": round(statistics.median(processes), 3),
        "tag_to_target_over_a_process": round((median - WINDOW) / statistics.median(processes), 2),
        "lost": len(crowd) - min(published.count, mirrored),
    }


def _processor(cloud: Cloud) -> float:
    """Processor seconds of this process, in which the cloud's endpoint runs, and of the handlers' processes."""
    return time.process_time() + sum(map(processor_seconds, cloud.handler_pids))


def _launched(cloud: Cloud, count: int) -> list[str]:
    """Create instances directly in EC2's memory, as boots and their events are not measured."""
    ec2 = cloud.account.ec2
    image = cloud.client("ec2").describe_images()["Images"][0]["ImageId"]
    reservation = ec2.run_instances(image, count, "", [], instance_type="t3.small", is_instance_type_default=False)
    return [instance.id for instance in reservation.instances]


def _prepared(cloud: Cloud, instances: list[str]) -> None:
    os.environ.update(cloud.environment)
    nodes = TableNodes(Clients(cloud.endpoint), cloud.table)
    for instance in instances:
        detail = {
            "cluster": CLUSTER,
            "instance_id": instance,
            "private_ip": "10.0.0.1",
            "attempt": 1,
            "outcome": "prepared",
            "at": time.time(),
        }
        facts = observe(_envelope("dyntrain.node", "Node Prepared", instance, detail), ELASTIC_TAG)
        assert isinstance(facts, NodeFacts), facts
        nodes.put(StoredNode(facts, 0), wake=False, expires=None)


def _envelope(source: str, kind: str, resource: str, detail: dict[str, Any]) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"version": "0", "id": f"bench-{resource}", "account": "123456789012", "region": "us-east-1", "time": moment}
    return {**head, "source": source, "detail-type": kind, "resources": [resource], "detail": detail}


def _tagged(cloud: Cloud, instance: str) -> dict[str, Any]:
    detail = {"changed-tag-keys": [KEY], "service": "ec2", "resource-type": "instance", "version": 1, "tags": {KEY: ""}}
    return _envelope(
        "aws.tag", "Tag Change on Resource", f"arn:aws:ec2:us-east-1:123456789012:instance/{instance}", detail
    )


def _target(cloud: Cloud) -> Target:
    """Read the target from the cloud's memory, so that the read does not count as a call."""
    with cloud.account.lock:
        parameter = ssm_backends[cloud.account.number][cloud.account.region].get_parameter(
            f"/dyntrain/{CLUSTER}/target"
        )
        return Target.model_validate_json(parameter.value) if parameter is not None else Target.of(0, ())


def _wait_for_tags(cloud: Cloud, instances: list[str], until: float) -> int:
    while True:
        with cloud.account.lock:
            tags = cloud.account.ec2.tags
            count = sum(tags.get(instance, {}).get("elastic_worker_status") == "ADD_QUEUED" for instance in instances)
        if count == len(instances) or time.monotonic() > until:
            return count
        time.sleep(0.2)


def _quiet(cloud: Cloud) -> None:
    """Wait until nothing was called for a second."""
    before, since = -1, time.monotonic()
    until = since + patient(DEADLINE)
    while time.monotonic() < min(since + 1.0, until):
        now = sum(cloud.calls.values())
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.05)


def _single(cloud: Cloud, instance: str) -> float:
    """Seconds from one event to the target with one more member."""
    before = _target(cloud).count
    started, deadline = time.monotonic(), Deadline(DEADLINE)
    cloud.bus.publish(_tagged(cloud, instance))
    while _target(cloud).count == before:
        if deadline.passed():
            raise TimeoutError(f"the tag of {instance} led to no target within {deadline.bound:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - started
