"""Least privilege, both ways: what each function's adapters really call, recorded from botocore, is what its policy allows.

The ports' methods that a function's modules use are read from their source; each is then called once, with botocore answering.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from deploy_packages import ROOT

from controller.adapters.autoscaling import AutoScalingGroups
from controller.adapters.aws import Clients
from controller.adapters.dynamodb import TableClusters, TableGroups, TableJobs, TableNodes
from controller.adapters.ec2 import Ec2Instances
from controller.adapters.reservations import Ec2Reservations, TableLedger
from controller.adapters.ssm import SsmParameters
from controller.contract import OWNER_TAG, STATUS_TAG, JobReport, Target
from controller.errors import ControllerError
from controller.facts import NodeFacts
from controller.groups import GroupFacts
from controller.job import JobFacts
from controller.ports import StoredGroup, StoredMembership, StoredNode
from controller.reserved_ports import StoredLedger
from controller.target import Membership

INSTANCE = "i-0123456789abcdef0"
MODULES = {
    "intake": ("intake",),
    "converge": ("converge", "execute", "publish", "scaling", "intake"),
    "resync": ("resync", "doubts", "intake"),
    "rebalance": ("rebalance", "pools", "pool_reading"),
}
USED = re.compile(r"\.(nodes|jobs|clusters|parameters|instances|groups|group_records|reservations|ledger)\.(?!values\b|items\b)(\w+)\(")
INFRASTRUCTURE = ("logs:", "xray:", "sqs:SendMessage")
STREAM = {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"}  # the event source's own calls
READS = re.compile(r"\w+:(Get|BatchGet|Query|Describe|List)")
JOB = JobReport(cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=0, revision=0, members=())

Call = Callable[[Any], object]
CALLS: dict[str, dict[str, Call]] = {
    "nodes": {
        "get": lambda port: port.get(INSTANCE),
        "get_many": lambda port: port.get_many([INSTANCE]),
        "put": lambda port: port.put(StoredNode(NodeFacts(instance=INSTANCE), 0), wake=True, expires=None),
        "of_cluster": lambda port: port.of_cluster("demo"),
    },
    "jobs": {"get": lambda port: port.get("demo"), "put": lambda port: port.put("demo", JobFacts(report=JOB, heard_at=1.0), 0, wake=True)},
    "clusters": {
        "get": lambda port: port.get("demo"),
        "put": lambda port: port.put("demo", StoredMembership(Membership(), 0, 0)),
        "tick": lambda port: port.tick("demo", 1.0),
        "record": lambda port: port.record("demo", 1.0, [{"kind": "status"}]),
        "pointer": lambda port: port.pointer("demo"),
    },
    "group_records": {
        "get": lambda port: port.get("g"),
        "put": lambda port: port.put(StoredGroup(GroupFacts(group="g"), 0), wake=False),
        "of_cluster": lambda port: port.of_cluster("demo"),
    },
    "parameters": {
        "policies": lambda port: port.policies(),
        "target": lambda port: port.target("demo"),
        "put_target": lambda port: port.put_target("demo", Target.of(1, ()), "p"),
    },
    "instances": {
        "tagged": lambda port: port.tagged(["k"]),
        "by_id": lambda port: port.by_id([INSTANCE]),
        "tag": lambda port: port.tag([INSTANCE], "k", "v"),
        "terminate": lambda port: port.terminate([INSTANCE]),
    },
    "groups": {
        "members": lambda port: port.members(["g"]),
        "hooks": lambda port: port.hooks("g"),
        "complete": lambda port: port.complete(INSTANCE, "g", "h", None, "CONTINUE"),
        "heartbeat": lambda port: port.heartbeat(INSTANCE, "g", "h", None),
        "terminate": lambda port: port.terminate(INSTANCE, "g"),
        "protect": lambda port: port.protect([INSTANCE], "g"),
        "tagged": lambda port: port.tagged("k"),
        "sizes": lambda port: port.sizes(["g"]),
        "set_desired": lambda port: port.set_desired("g", 1),
    },
    "reservations": {
        "reserved": lambda port: port.reserved(),
        "capacity": lambda port: port.capacity(),
        "machines": lambda port: port.machines(),
        "start": lambda port: port.start([INSTANCE]),
        "stop": lambda port: port.stop([INSTANCE]),
        "untag": lambda port: port.untag([INSTANCE], "k"),
    },
    "ledger": {
        "get": lambda port: port.get(),
        "put": lambda port: port.put(StoredLedger.model_construct() if hasattr(StoredLedger, "model_construct") else None),
    },
}


class Recorded:
    """Adapters whose clients note the operation and get an empty answer: botocore's `before-call` event replaces the request."""

    def __init__(self) -> None:
        self.actions: set[str] = set()
        clients = Clients("http://127.0.0.1:9", attempts=1)
        for client in (clients.ec2(), clients.autoscaling(), clients.dynamodb(), clients.ssm()):
            client.meta.events.register("before-call", self._answer)
        table = (clients, "facts")
        self.ports: dict[str, Any] = {
            "nodes": TableNodes(*table),
            "jobs": TableJobs(*table),
            "clusters": TableClusters(*table),
            "group_records": TableGroups(*table),
            "parameters": SsmParameters(clients),
            "instances": Ec2Instances(clients),
            "groups": AutoScalingGroups(clients),
            "reservations": Ec2Reservations(clients),
            "ledger": TableLedger(*table),
        }

    def _answer(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        service = {"auto scaling": "autoscaling"}.get(model.service_model.service_id.lower(), model.service_model.service_id.lower())
        self.actions.add(f"{service}:{model.name}")
        lists = ("AutoScalingGroups", "LifecycleHooks", "Reservations", "ReservedInstances", "CapacityReservations", "Items", "Parameters")
        parsed: dict[str, Any] = {name: [] for name in lists} | {"Responses": {}, "Parameter": {"Value": "{}"}}

        class Http:
            status_code = 200

        return Http, parsed | {"ResponseMetadata": {"HTTPStatusCode": 200}}


def statements(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / ".chalice" / f"policy-{policy}.json").read_text())["Statement"]
    return found


def allowed(policy: str) -> set[str]:
    return {action for entry in statements(policy) for action in entry["Action"] if not action.startswith(INFRASTRUCTURE)} - STREAM


def used(policy: str) -> set[tuple[str, str]]:
    found = {pair for module in MODULES[policy] for pair in USED.findall((ROOT / "controller" / f"{module}.py").read_text())}
    return found | ({("parameters", "policies")} if policy != "intake" else set())  # the registry reads them for all but intake


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "eu-central-1")):
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()
    return Recorded()


@pytest.mark.parametrize("policy", sorted(MODULES))
def test_a_policy_allows_the_calls_that_its_functions_make_and_no_other(policy: str, recorded: Recorded) -> None:
    for port, method in sorted(used(policy)):
        assert method in CALLS[port], f"say in CALLS how {port}.{method} is called"
        try:
            CALLS[port][method](recorded.ports[port])
        except (ControllerError, AttributeError, TypeError):
            continue  # what it makes of an empty answer is not asked here
    assert recorded.actions == allowed(policy)


@pytest.mark.parametrize("policy", sorted(MODULES))
def test_every_mutating_ec2_or_group_call_is_bound_by_a_condition(policy: str) -> None:
    """By the ownership tag. Two exceptions say by key what may be written: the status tag, and the tags of listed pool instances."""
    for entry in statements(policy):
        mutating = [action for action in entry["Action"] if action.startswith(("ec2:", "autoscaling:")) and not READS.match(action)]
        if mutating:
            condition = json.dumps(entry["Condition"])
            by_key = {"ec2:CreateTags", "ec2:DeleteTags"} >= set(mutating) and "aws:TagKeys" in condition
            assert f"ResourceTag/{OWNER_TAG}" in condition or by_key or "ResourceTag/dyntrain:pool" in condition, entry["Sid"]
            assert "elastic-worker" not in condition or by_key, entry["Sid"]


def test_without_ownership_only_the_status_key_may_be_written_by_converge() -> None:
    tags = [entry for entry in statements("converge") if "ec2:CreateTags" in entry["Action"]]
    keys = [entry["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"] for entry in tags]
    assert sorted(keys) == [[OWNER_TAG], [STATUS_TAG]]
