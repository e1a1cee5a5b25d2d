"""Auto Scaling groups with lifecycle hooks, through boto3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
from dyntrain.controller.local.disturbance import DisturbanceRates
from local_toycloud import QUIET, ToyCloud, toy_cloud
from waiting import wait_for

GROUP = "demo-workers"
TEMPLATE = "demo-template"
TAGS = [{"ResourceType": "instance", "Tags": [{"Key": "demo-elastic-worker", "Value": ""}]}]


@dataclass(frozen=True)
class Group:
    toy: ToyCloud
    autoscaling: Any

    def hook(self, name: str, transition: str, default: str, seconds: int = 300) -> None:
        self.autoscaling.put_lifecycle_hook(
            AutoScalingGroupName=GROUP,
            LifecycleHookName=name,
            LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
            HeartbeatTimeout=seconds,
            DefaultResult=default,
        )

    def desire(self, capacity: int) -> None:
        self.autoscaling.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=capacity)

    def desired(self) -> int:
        return int(self.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"][0]["DesiredCapacity"])

    def states(self) -> dict[str, str]:
        instances = self.autoscaling.describe_auto_scaling_instances()["AutoScalingInstances"]
        return {instance["InstanceId"]: instance["LifecycleState"] for instance in instances}

    def await_states(self, *wanted: str) -> list[str]:
        """Waits until the members' states are these; returns the instances."""
        return list(wait_for(lambda: sorted(self.states().values()) == sorted(wanted) and (self.states() or {"": ""})))

    def complete(self, hook: str, result: str, **which: str) -> None:
        self.autoscaling.complete_lifecycle_action(
            AutoScalingGroupName=GROUP, LifecycleHookName=hook, LifecycleActionResult=result, **which
        )

    def events(self, detail_type: str) -> list[dict[str, Any]]:
        """Without the test notifications."""
        events = [line["event"] for line in self.toy.trace("event")]
        return [event for event in events if event["detail-type"] == detail_type and "Event" not in event["detail"]]


def make_group(toy: ToyCloud, **more: Any) -> Group:
    toy.cloud.client("ec2").create_launch_template(
        LaunchTemplateName=TEMPLATE,
        LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "t3.micro", "TagSpecifications": TAGS},
    )
    autoscaling = toy.cloud.client("autoscaling")
    sizes = {"MinSize": 0, "MaxSize": 3, **more}
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchTemplate={"LaunchTemplateName": TEMPLATE},
        AvailabilityZones=["us-east-1a"],
        **sizes,
    )
    return Group(toy, autoscaling)


@pytest.fixture
def group(toy: ToyCloud) -> Group:
    return make_group(toy)


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"], caught.value.response["Error"]["Message"]


def test_a_group_that_rebalances_has_the_replacement_in_service_before_the_instance_goes(toy: ToyCloud) -> None:
    """A controller that took the newcomer for one too many would lower the group, and the cluster would shrink."""
    group = make_group(toy, CapacityRebalance=True)
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [first] = group.await_states("Pending:Wait")
    group.complete("demo-launch", "CONTINUE", InstanceId=first)
    group.await_states("InService")
    toy.cloud.instances.recommend_rebalance(first)
    group.await_states("InService", "Pending:Wait")
    [second] = set(group.states()) - {first}
    group.complete("demo-launch", "CONTINUE", InstanceId=second)
    wait_for(lambda: group.states() == {second: "InService"})
    assert group.desired() == 1


def test_an_instance_waits_for_its_launch_hook_and_goes_into_service_on_continue(group: Group) -> None:
    """Without the wait, prepare-data would never hold a node back."""
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [instance_id] = group.await_states("Pending:Wait")
    event = wait_for(lambda: group.events("EC2 Instance-launch Lifecycle Action"))[0]
    assert event["detail"]["EC2InstanceId"] == instance_id
    assert event["detail"]["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_LAUNCHING"
    assert event["resources"][0].endswith(f"autoScalingGroupName/{GROUP}")
    group.complete("demo-launch", "CONTINUE", LifecycleActionToken=event["detail"]["LifecycleActionToken"])
    group.await_states("InService")
    assert group.events("EC2 Instance Launch Successful")[0]["detail"]["EC2InstanceId"] == instance_id
    wait_for(
        lambda: (
            "EC2 Instance-launch Lifecycle Action"
            in [event["detail-type"] for event in group.toy.payloads("on_autoscaling")]
        )
    )


def test_whoever_listens_is_sent_a_test_notification_when_a_hook_is_put(group: Group) -> None:
    """AWS's names no transition: a controller that wants one would put it aside and page."""
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    (heard,) = wait_for(lambda: group.toy.payloads("on_autoscaling"))
    assert heard["detail-type"] == "EC2 Instance-launch Lifecycle Action"
    assert heard["detail"]["Event"] == "autoscaling:TEST_NOTIFICATION"
    assert heard["detail"]["AutoScalingGroupName"] == GROUP
    assert "LifecycleTransition" not in heard["detail"]


def test_describe_calls_show_groups_as_they_were_a_while_ago(group: Group) -> None:
    """A controller that counts on its own change being shown must be found out here."""
    cloud = group.toy.cloud
    cloud.disturbance.set(DisturbanceRates(behind_seconds=3600.0))
    group.desire(1)
    wait_for(lambda: group.desired() == 0 and not group.states())
    cloud.disturbance.set(DisturbanceRates())
    assert group.desired() == 1
    (member,) = group.await_states("InService")
    cloud.disturbance.set(DisturbanceRates(behind_seconds=3600.0))
    wait_for(lambda: group.states() != {member: "InService"})
    cloud.disturbance.set(DisturbanceRates())
    assert group.states() == {member: "InService"}


def test_a_group_that_is_created_with_a_capacity_launches_it_with_its_tags(toy: ToyCloud) -> None:
    group = make_group(toy, DesiredCapacity=2)
    ids = group.await_states("InService", "InService")
    tags = toy.cloud.account.instance_tags(ids[0])
    assert (tags["demo-elastic-worker"], tags["aws:autoscaling:groupName"]) == ("", GROUP)


def test_abandon_on_launch_terminates_and_replaces_ever_more_slowly(group: Group) -> None:
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [first] = group.await_states("Pending:Wait")
    group.complete("demo-launch", "ABANDON", InstanceId=first)
    wait_for(lambda: group.toy.cloud.instance_state(first) == "terminated")
    second = wait_for(
        lambda: [one for one, state in group.states().items() if one != first and state == "Pending:Wait"]
    )[0]
    assert group.toy.cloud.instance_state(second) == "running"
    assert group.events("EC2 Instance Launch Unsuccessful")[0]["detail"]["EC2InstanceId"] == first
    assert group.desired() == 1


def test_a_stale_token_is_refused_as_aws_refuses_it(group: Group) -> None:
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [instance_id] = group.await_states("Pending:Wait")
    group.complete("demo-launch", "CONTINUE", InstanceId=instance_id)
    code, message = refusal(lambda: group.complete("demo-launch", "CONTINUE", InstanceId=instance_id))
    assert (code, message) == ("ValidationError", f"No active Lifecycle Action found with instance ID {instance_id}")
    token = "11111111-2222-3333-4444-555555555555"
    assert f"token {token}" in refusal(lambda: group.complete("demo-launch", "ABANDON", LifecycleActionToken=token))[1]
    beat = {"AutoScalingGroupName": GROUP, "LifecycleHookName": "demo-launch", "InstanceId": instance_id}
    assert refusal(lambda: group.autoscaling.record_lifecycle_action_heartbeat(**beat))[0] == "ValidationError"


def test_a_hook_that_nobody_completes_ends_with_its_default_and_heartbeats_put_it_off(tmp_path: Path) -> None:
    """Hook seconds last a fiftieth here: 30 are 0.6. On a slow machine one heartbeat may come too late; then nothing is
    said of those after it.
    """
    with toy_cloud(tmp_path, replace(QUIET, hook_scale=0.02)) as cloud:
        group = make_group(ToyCloud(cloud, tmp_path))
        group.hook("demo-launch", "LAUNCHING", "CONTINUE", seconds=30)
        group.desire(1)
        wait_for(lambda: set(group.states().values()) & {"Pending:Wait", "InService"})
        [instance_id] = group.states()
        heard = 0.0
        for _ in range(6):
            sent = cloud.groups._clock()
            try:
                group.autoscaling.record_lifecycle_action_heartbeat(
                    AutoScalingGroupName=GROUP, LifecycleHookName="demo-launch", InstanceId=instance_id
                )
            except ClientError:
                break
            heard = sent
            wait_for(lambda until=sent + 0.2: cloud.groups._clock() > until)
        group.await_states("InService")
        assert cloud.groups._clock() - heard >= 0.6


def test_scale_in_waits_for_the_terminate_hook_and_then_the_instance_is_gone(group: Group) -> None:
    group.hook("demo-terminate", "TERMINATING", "CONTINUE")
    group.desire(2)
    before = set(group.await_states("InService", "InService"))
    group.desire(1)
    group.await_states("InService", "Terminating:Wait")
    leaving = next(one for one, state in group.states().items() if state == "Terminating:Wait")
    assert group.toy.cloud.instance_state(leaving) == "running"
    assert group.events("EC2 Instance-terminate Lifecycle Action")[0]["detail"]["EC2InstanceId"] == leaving
    group.complete("demo-terminate", "ABANDON", InstanceId=leaving)  # both results terminate
    assert set(group.await_states("InService")) == before - {leaving}
    wait_for(lambda: group.toy.cloud.instance_state(leaving) == "terminated")
    wait_for(lambda: group.events("EC2 Instance Terminate Successful"))


def test_scale_in_while_pending_lets_the_pending_one_go(group: Group) -> None:
    """Up by one and down again before it is prepared: the members in service stay."""
    group.desire(1)
    [kept] = group.await_states("InService")
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(2)
    group.await_states("InService", "Pending:Wait")
    group.desire(1)
    assert group.await_states("InService") == [kept]


def test_protected_instances_stay_and_desired_drops_all_the_same(group: Group) -> None:
    group.desire(1)
    [instance_id] = group.await_states("InService")
    group.autoscaling.set_instance_protection(
        AutoScalingGroupName=GROUP, InstanceIds=[instance_id], ProtectedFromScaleIn=True
    )
    group.desire(0)
    until = group.toy.cloud.groups._clock() + 0.5
    wait_for(lambda: group.toy.cloud.groups._clock() > until)
    assert (group.desired(), group.states()) == (0, {instance_id: "InService"})


def test_terminate_in_group_with_decrement_goes_through_the_hook_once(group: Group) -> None:
    group.hook("demo-terminate", "TERMINATING", "CONTINUE")
    group.desire(2)
    first, _ = group.await_states("InService", "InService")
    for _ in range(2):
        activity = group.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=first, ShouldDecrementDesiredCapacity=True
        )["Activity"]
        assert activity["AutoScalingGroupName"] == GROUP
    assert (group.states()[first], group.desired()) == ("Terminating:Wait", 1)
    group.complete("demo-terminate", "CONTINUE", InstanceId=first)
    group.await_states("InService")


def test_terminate_in_group_without_decrement_replaces(group: Group) -> None:
    group.desire(1)
    [first] = group.await_states("InService")
    group.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=False)
    wait_for(lambda: list(group.states().values()) == ["InService"] and first not in group.states())
    assert group.desired() == 1


def test_terminate_in_group_is_refused_below_the_minimum_and_for_strangers(toy: ToyCloud) -> None:
    group = make_group(toy, MinSize=1, DesiredCapacity=1)
    [only] = group.await_states("InService")
    terminate = group.autoscaling.terminate_instance_in_auto_scaling_group
    assert "minSize" in refusal(lambda: terminate(InstanceId=only, ShouldDecrementDesiredCapacity=True))[1]
    stranger = toy.run_instance()
    assert refusal(lambda: terminate(InstanceId=stranger, ShouldDecrementDesiredCapacity=False))[0] == "ValidationError"
    assert group.states() == {only: "InService"}


def test_a_member_terminated_from_outside_is_replaced(group: Group) -> None:
    group.desire(1)
    [first] = group.await_states("InService")
    group.toy.cloud.client("ec2").terminate_instances(InstanceIds=[first])
    wait_for(lambda: list(group.states().values()) == ["InService"] and first not in group.states())
    assert group.toy.cloud.instance_state(first) in ("shutting-down", "terminated")


def test_a_group_whose_processes_are_suspended_lets_a_member_be_stopped_and_started(group: Group) -> None:
    """How a cluster that is over is stopped; as it was before, the group would end and replace what does not run."""
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [only] = group.await_states("Pending:Wait")
    group.complete("demo-launch", "CONTINUE", InstanceId=only)
    group.await_states("InService")
    clients: Any = SimpleNamespace(autoscaling=lambda: group.autoscaling)
    AutoScalingGroups(clients).suspend_replacement(GROUP)
    ec2 = group.toy.cloud.client("ec2")
    for call, state in ((ec2.stop_instances, "stopped"), (ec2.start_instances, "running")):
        call(InstanceIds=[only])
        wait_for(lambda state=state: group.toy.cloud.instance_state(only) == state)
        assert group.states() == {only: "InService"}


def test_a_group_that_is_kept_from_launching_replaces_nothing_until_it_is_let_go_on(group: Group) -> None:
    """How nodes that fail alike are kept from being launched for ever; what people want is left as it is."""
    group.hook("demo-launch", "LAUNCHING", "ABANDON")
    group.desire(1)
    [first] = group.await_states("Pending:Wait")
    clients: Any = SimpleNamespace(autoscaling=lambda: group.autoscaling)
    groups = AutoScalingGroups(clients)
    assert groups.sizes([GROUP])[GROUP].launches
    groups.suspend_launches(GROUP)
    assert not groups.sizes([GROUP])[GROUP].launches
    group.complete("demo-launch", "ABANDON", InstanceId=first)
    wait_for(lambda: group.toy.cloud.instance_state(first) == "terminated" and group.states() == {})
    group.desire(2)
    assert (groups.sizes([GROUP])[GROUP].desired, group.states()) == (2, {})
    groups.resume_launches(GROUP)
    assert len(group.await_states("Pending:Wait", "Pending:Wait")) == 2


def test_refused_launches_are_reported_without_an_instance_and_tried_again(group: Group) -> None:
    """C17: the real event has an empty instance id."""
    group.toy.cloud.groups.refuse_launches(GROUP, ["We currently do not have sufficient capacity"])
    group.desire(1)
    failed = wait_for(lambda: group.events("EC2 Instance Launch Unsuccessful"))[0]
    assert (failed["detail"]["EC2InstanceId"], len(failed["resources"])) == ("", 1)
    assert len(group.await_states("InService")) == 1


def test_capacities_outside_the_bounds_are_refused(group: Group) -> None:
    assert refusal(lambda: group.desire(4)) == (
        "ValidationError",
        "New SetDesiredCapacity value 4 is above max value 3 for the AutoScalingGroup.",
    )
    update = group.autoscaling.update_auto_scaling_group
    assert refusal(lambda: update(AutoScalingGroupName=GROUP, DesiredCapacity=9))[0] == "ValidationError"
    assert refusal(lambda: update(AutoScalingGroupName=GROUP, MinSize=5))[0] == "ValidationError"
    assert refusal(lambda: group.hook("h", "LAUNCHING", "ABANDON", seconds=5))[0] == "ValidationError"
    unknown = {"AutoScalingGroupName": "nobody", "DesiredCapacity": 1}
    assert refusal(lambda: group.autoscaling.set_desired_capacity(**unknown))[0] == "ValidationError"


def test_a_group_with_instances_is_deleted_by_force_only(group: Group) -> None:
    group.desire(1)
    [instance_id] = group.await_states("InService")
    assert (
        refusal(lambda: group.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=GROUP))[0] == "ResourceInUse"
    )
    group.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    wait_for(lambda: group.toy.cloud.instance_state(instance_id) == "terminated")
    assert group.states() == {}


def test_standard_parameters_hold_four_kilobytes_and_no_more(toy: ToyCloud) -> None:
    """C21: without the limit the controller's pointer would never be needed here, and break there."""
    ssm = toy.cloud.client("ssm")
    ssm.put_parameter(Name="/a", Value="x" * 4096, Type="String")
    assert refusal(lambda: ssm.put_parameter(Name="/b", Value="x" * 4097, Type="String"))[0] == "ValidationException"
    ssm.put_parameter(Name="/c", Value="x" * 8192, Type="String", Tier="Advanced")
    assert len(ssm.get_parameter(Name="/c")["Parameter"]["Value"]) == 8192
