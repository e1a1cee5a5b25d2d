"""What nodes may do in AWS, by the roles that the cluster's template makes: what they need, and nothing
of another cluster's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from dyntrain.controller.contract.messages import launch_template_name, parameter
from dyntrain.controller.contract.stage import stage_parameter
from local_template import (
    actions,
    every_call_of_a_base_node,
    every_call_of_a_worker,
    launch_templates,
    role_statements,
    template,
    value_of,
)
from local_toycloud import ToyCloud

# the log agent, and user data
OF_PROGRAMS_AROUND = {
    "logs:CreateLogStream",
    "logs:DescribeLogStreams",
    "logs:PutLogEvents",
    "s3:GetObject",
}


@pytest.mark.parametrize(
    ("role", "every_call"), [("NodeRole", every_call_of_a_base_node), ("WorkerRole", every_call_of_a_worker)]
)
def test_a_nodes_role_may_make_the_calls_that_such_nodes_make_and_no_other(
    role: str, every_call: Callable[[ToyCloud], set[str]], stack: ToyCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.cloud.environment.items():
        monkeypatch.setenv(name, value)
    allowed = {action for statement in role_statements(stack, role=role) for action in actions(statement)}
    assert allowed - OF_PROGRAMS_AROUND == every_call(stack)


def test_added_workers_have_the_role_that_publishes_no_coordinator_and_base_nodes_the_one_that_does(
    stack: ToyCloud,
) -> None:
    """A worker that was broken into could have all others train for a coordinator of its own."""
    templates = launch_templates(stack)
    profiles = {name: data["IamInstanceProfile"]["Arn"].rpartition("/")[2] for name, data in templates.items()}
    roles = {
        one["InstanceProfileName"]: [role["RoleName"].rsplit("-", 1)[0] for role in one["Roles"]]
        for one in stack.cloud.client("iam").list_instance_profiles()["InstanceProfiles"]
    }
    assert {name: roles[profile] for name, profile in profiles.items()} == {
        "demo-node": ["demo-NodeRole"],
        "demo-worker": ["demo-WorkerRole"],
        launch_template_name("demo"): ["demo-WorkerRole"],
    }
    resources = template()["Resources"]
    named = {
        name: json.dumps(resources[name]["Properties"])
        for name in ("MasterAutoScalingGroup", "BaseGroup", "WorkerGroup")
    }
    assert [(name, '{"Ref": "NodeTemplate"}' in text) for name, text in named.items()] == [
        ("MasterAutoScalingGroup", True),
        ("BaseGroup", True),
        ("WorkerGroup", False),
    ]
    assert '{"Ref": "GroupTemplate"}' in named["WorkerGroup"]


@pytest.mark.parametrize("role", ["NodeRole", "WorkerRole"])
def test_a_nodes_role_reaches_its_own_cluster_and_nothing_else(role: str, stack: ToyCloud) -> None:
    """A node that was broken into must not read another cluster's token, nor publish a coordinator for it."""
    statements = [(action, one) for one in role_statements(stack, role=role) for action in actions(one)]

    def reached(action: str) -> list[str]:
        named = [one["Resource"] for name, one in statements if name == action]
        flat = [one for part in named for one in (part if isinstance(part, list) else [part])]
        return sorted(one.rpartition(":")[2] for one in flat)

    def conditions(action: str) -> list[Any]:
        return [next(iter(one["Condition"].values())) for name, one in statements if name == action]

    of_all = [
        f"parameter{parameter('demo', 'coordinator')}",
        f"parameter{parameter('demo', 'node')}",
        f"parameter{parameter('demo', 'target')}",
        f"parameter{parameter('demo', 'token')}",
    ]
    leads, runs = role == "NodeRole", [{"events:source": ["dyntrain.node.demo"]}]
    assert reached("ssm:GetParameter") == [
        *([f"parameter{stage_parameter('local', 'table')}", of_all[0], of_all[2]] if leads else []),
    ]
    assert reached("ssm:GetParameters") == of_all
    assert reached("ssm:PutParameter") == ([of_all[0], of_all[3]] if leads else [])
    of_job = [{"events:source": ["dyntrain.coordinator.demo"]}] if leads else []
    assert sorted(map(str, conditions("events:PutEvents"))) == sorted(map(str, runs + of_job))
    tables = f"table/{value_of(stack, stage_parameter('local', 'tables'))}"
    assert reached("dynamodb:GetItem") == ([tables] if leads else [])
    assert conditions("dynamodb:GetItem") == ([{"dynamodb:LeadingKeys": ["cluster#demo"]}] if leads else [])
    loose = ("logs:", "dynamodb:")
    assert "*" not in json.dumps([one["Resource"] for action, one in statements if not action.startswith(loose)])
