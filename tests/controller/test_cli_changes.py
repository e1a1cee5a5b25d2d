"""`dyntrain scale`, `add` and `remove`: what they will do, said beside the same in `aws`; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.query import snapshot
from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, removal_request
from dyntrain.controller.cli.changing.requests import Resize, Tag, plan_resize, plan_tag, plan_untag
from dyntrain.controller.cli.shell.aws_settings import aws_settings, changed_environment
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.leave_windows import LEAVE_TAG
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.pool_policy import PoolPolicy
from dyntrain.controller.core.records.groups import GroupSize
from fakes import ELASTIC, World, instance_id

POLICY = ClusterPolicy(cluster="demo", groups=("demo-workers",))
ONE = {"demo-workers": GroupSize(minimum=0, maximum=4, desired=2, running=2)}
KEY = ELASTIC.of("demo")
BASE = GroupSize(minimum=1, maximum=1, desired=1, running=1, base=True)
TEMPLATE = {"demo-master": BASE, "demo-base": BASE, **ONE}  # what a cluster of the template has


refuses_all: Any = None  # ports that nobody may use


def test_a_scale_says_what_it_does_and_the_same_in_aws() -> None:
    up, down, same = (plan_resize(POLICY, ONE, None, to=n) for n in (4, 0, 2))
    assert up.aws_command == (
        "aws autoscaling set-desired-capacity --auto-scaling-group-name demo-workers --desired-capacity 4"
    )
    assert "from 2 to 4: 2 more will be launched" in up.sentence
    assert "2 will leave at the next boundary" in down.sentence
    assert carry_out_unless_dry_run(refuses_all, same, dry_run=False, say_where=print) == same.sentence, (
        "and nothing to watch"
    )
    assert "nothing to do" in same.sentence
    assert plan_resize(POLICY, ONE, None, increase=1).new_size == 3


def test_groups_of_base_nodes_are_neither_scaled_nor_in_the_way() -> None:
    policy = POLICY.model_copy(update={"groups": tuple(TEMPLATE)})
    assert plan_resize(policy, TEMPLATE, None, to=4) == Resize("demo", "demo-workers", 2, 4)
    with pytest.raises(GiveUp, match=r"demo-base launches base nodes.*workers: demo-workers$"):
        plan_resize(policy, TEMPLATE, "demo-base", increase=1)
    with pytest.raises(GiveUp, match="no Auto Scaling group of elastic workers"):
        plan_resize(policy, {"demo-master": BASE}, None, to=1)
    pool = PoolPolicy(instance_type="c5.large", max=4, group="demo-workers")
    with pytest.raises(GiveUp, match="only the reserved pool sets the size of demo-workers"):
        plan_resize(policy.model_copy(update={"pool": pool}), TEMPLATE, None, to=4)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: plan_resize(POLICY, ONE, None, to=5), "between 0 and 4 instances, not 5.*--max-size 5"),
        (lambda: plan_resize(POLICY, {}, None, to=1), "no Auto Scaling group"),
        (lambda: plan_resize(POLICY, {**ONE, "more": ONE["demo-workers"]}, None, to=1), "--group is missing"),
        (
            lambda: plan_resize(POLICY, ONE, "typo", to=1),
            r"typo is no group of demo that exists \(its groups: demo-workers",
        ),
    ],
)
def test_a_scale_that_cannot_be_says_what_to_do(ask: Callable[[], Resize], message: str) -> None:
    with pytest.raises(GiveUp, match=message):
        ask()


def test_a_group_that_the_pool_sizes_is_not_scaled_by_hand() -> None:
    pooled = POLICY.model_copy(update={"pool": PoolPolicy(instance_type="c5.large", max=4)})
    with pytest.raises(GiveUp, match="only the reserved pool sets the size of demo-workers"):
        plan_resize(pooled, ONE, None, to=1)


def test_a_worker_is_removed_by_its_tag_and_a_base_node_is_not() -> None:
    world = World()
    base, worker = world.launch(1, base=True, NodeType="Master"), world.launch(2)
    world.hear(world.tag(worker), world.report(worker), world.report(base))
    views = [node.view for node in snapshot(world.ports, world.registry, "demo", ELASTIC).decision.nodes]
    request = plan_untag("demo", [worker], views, KEY)
    output = carry_out_unless_dry_run(world.ports, request, dry_run=True, say_where=print)
    assert KEY in world.machines[worker].tags, "a dry run changes nothing"
    assert f"aws ec2 delete-tags --resources {worker} --tags Key={KEY}" in output
    carry_out_unless_dry_run(world.ports, request, dry_run=False, say_where=print)
    assert KEY not in world.machines[worker].tags
    with pytest.raises(GiveUp, match=f"dyntrain base replace {base} NEW"):
        plan_untag("demo", [base], views, KEY)
    with pytest.raises(GiveUp, match="the controller does not know"):
        plan_untag("demo", [instance_id(9)], views, KEY)


def test_who_is_to_leave_now_waits_for_no_window_also_when_it_is_to_leave_already() -> None:
    world = World()
    worker = world.launch(1)
    world.hear(world.tag(worker), world.report(worker))
    connection = Connection(world.ports, world.registry, ELASTIC)
    output = carry_out_unless_dry_run(
        world.ports, removal_request(connection, [worker], now=True), dry_run=False, say_where=print
    )
    assert f"create-tags --resources {worker} --tags Key={LEAVE_TAG},Value=now && aws ec2 delete-tags" in output
    assert (KEY in world.machines[worker].tags, world.machines[worker].tags[LEAVE_TAG]) == (False, "now")
    assert [call[0] for call in world.calls if call[0].endswith("tag")][-2:] == ["instances.tag", "instances.untag"]

    world.hear(world.tag(worker, present=False))
    with pytest.raises(GiveUp, match="does not work for demo any more"):
        removal_request(connection, [worker])
    again = removal_request(connection, [worker], now=True)
    assert (again.instances, again.hurried) == ((), (worker,))
    assert "delete-tags" not in carry_out_unless_dry_run(world.ports, again, dry_run=False, say_where=print)


def test_only_machines_that_run_and_are_not_tagged_yet_are_tagged() -> None:
    world = World()
    plain, tagged, ended = world.launch(1, elastic=False), world.launch(2), world.launch(3)
    world.machines[ended].state = "terminated"
    seen = world.ports.instances.by_id([plain, tagged, ended])
    assert plan_tag("demo", [plain, tagged], seen, KEY) == Tag("demo", (plain,), KEY)
    for instance, message in (
        (tagged, "tagged for demo already"),
        (ended, "terminated"),
        (instance_id(9), "no instance"),
    ):
        with pytest.raises(GiveUp, match=message):
            plan_tag("demo", [instance], seen, KEY)


def test_what_aws_refuses_is_no_success() -> None:
    world = World()
    worker = world.launch(1, elastic=False)
    world.refusing[worker] = "UnauthorizedOperation"
    with pytest.raises(GiveUp, match="UnauthorizedOperation"):
        carry_out_unless_dry_run(world.ports, Tag("demo", (worker,), KEY), dry_run=False, say_where=print)


def test_region_and_profile_count_as_for_the_aws_command_line() -> None:
    environment = {"AWS_REGION": "eu-west-3", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x"}
    before = dict(environment)
    with changed_environment(environment, aws_settings(environment, None, None)):
        assert environment["AWS_DEFAULT_REGION"] == "eu-west-3"
    with changed_environment(environment, aws_settings(environment, "eu-north-1", "work")):
        assert (environment["AWS_DEFAULT_REGION"], environment["AWS_PROFILE"]) == ("eu-north-1", "work")
        assert "AWS_ACCESS_KEY_ID" not in environment, "keys in the environment would overrule the profile"
    assert environment == before
