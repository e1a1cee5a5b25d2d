"""Apply the effects of API calls that the AWS emulator moto has answered: machines boot or shut down, Auto Scaling
groups launch or terminate instances, and events are published.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.calls import ApiAnswer, ApiCall
from dyntrain.controller.local.cloud.groups import AutoScalingGroups
from dyntrain.controller.local.cloud.instances import Instances
from dyntrain.controller.local.cloud.past import PastStates
from dyntrain.controller.local.cloud.stacks import complete_stack, prepare_deletion
from dyntrain.controller.local.cloud.tags import TagsByInstance, TagWatch
from dyntrain.controller.local.events import EventOrigin
from dyntrain.controller.local.lambdas.bus import EventBus
from dyntrain.controller.local.options import Options

TABLE_WRITE_ACTIONS = frozenset(
    {
        "PutItem",
        "UpdateItem",
        "DeleteItem",
        "BatchWriteItem",
        "TransactWriteItems",
        "ExecuteStatement",
        "BatchExecuteStatement",
        "ExecuteTransaction",
    }
)


@dataclass(frozen=True)
class StateBeforeCall:
    """The state before an API call, as far as the effects of the call depend on this state. `form` has the parameters
    that moto gets in place of the call's own parameters, or is None if moto gets the unchanged call.
    """

    tags: TagsByInstance  # the instances' tags before the call
    form: dict[str, str] | None = None  # parameters that moto gets in place of the call's own
    group_members: tuple[str, ...] = ()  # instance ids of a group that the call deletes


class CallConsequences:
    def __init__(
        self,
        account: Account,
        bus: EventBus,
        instances: Instances,
        groups: AutoScalingGroups,
        options: Options,
        on_table_write: Callable[[], None],
        past: PastStates,
    ) -> None:
        self._account = account
        self._bus = bus
        self._instances = instances
        self._groups = groups
        self._options = options
        self._on_table_write = on_table_write
        self._past = past
        self._tags = TagWatch(account, bus)

    def prepare_call(self, call: ApiCall) -> StateBeforeCall:
        if call.service == "ec2" and call.action in ("CreateTags", "DeleteTags"):
            tags_by_instance = self._tags.tags_snapshot(call.list_values("ResourceId"))
            for instance_id in tags_by_instance:
                self._past.record_former_tags(instance_id)
            return StateBeforeCall(tags_by_instance)
        if call.service == "cloudformation" and call.action == "DeleteStack":
            prepare_deletion(self._account, call.form["StackName"])
        if call.service == "autoscaling" and call.action == "CreateAutoScalingGroup":
            # moto would launch instances at once; `_apply_scaling_effects` sets the real capacity, for later launches
            return StateBeforeCall({}, {**call.form, "DesiredCapacity": "0"})
        if call.service == "autoscaling" and call.action == "DeleteAutoScalingGroup":
            group = self._account.autoscaling.autoscaling_groups[call.form["AutoScalingGroupName"]]
            return StateBeforeCall({}, None, tuple(state.instance.id for state in group.instance_states))
        return StateBeforeCall({})

    def apply_consequences(self, call: ApiCall, state_before: StateBeforeCall, answer: ApiAnswer) -> ApiAnswer:
        """Apply the effects of an API call that moto accepted, and return the answer for the client."""
        if call.service == "ec2":
            return self._apply_ec2_effects(call, state_before, answer)
        if call.service == "autoscaling":
            self._apply_scaling_effects(call, state_before)
        elif call.service == "cloudformation" and call.action == "CreateStack":
            for group, hook in complete_stack(self._account, call.form["StackName"]):
                self._groups.announce_hook(group, hook)
            self._groups.reconcile_groups()
        elif call.service == "dynamodb" and call.action in TABLE_WRITE_ACTIONS:
            self._on_table_write()
        elif call.service == "events" and call.action == "PutEvents":
            self._publish_events(call, answer)
        return answer

    def _apply_ec2_effects(self, call: ApiCall, state_before: StateBeforeCall, answer: ApiAnswer) -> ApiAnswer:
        if call.action == "RunInstances":
            return self._correct_launch_answer(answer)
        if call.action in ("CreateTags", "DeleteTags"):
            self._tags.publish_changes(state_before.tags)
        elif call.action == "ReplaceIamInstanceProfileAssociation":
            self._instances.on_profile_replaced(call.form["AssociationId"])
        elif call.action == "TerminateInstances":
            for instance_id in call.list_values("InstanceId"):
                self._instances.on_terminate(instance_id)
            self._groups.reconcile_groups()
        elif call.action == "StopInstances":
            for instance_id in call.list_values("InstanceId"):
                self._instances.on_stop(instance_id)
        elif call.action == "StartInstances":
            for instance_id in call.list_values("InstanceId"):
                self._instances.on_start(instance_id)
        elif call.action == "RebootInstances":
            for instance_id in call.list_values("InstanceId"):
                self._instances.on_reboot(instance_id)
        return answer

    def _correct_launch_answer(self, answer: ApiAnswer) -> ApiAnswer:
        """Correct moto's answer to RunInstances so that the answer agrees with later describe calls: new instances are
        pending, and have addresses of the embedded cloud.
        """
        xml_text = answer.body.decode()
        instance_ids = re.findall(r"<instanceId>(i-[0-9a-f]+)</instanceId>", xml_text)
        for instance_id in dict.fromkeys(instance_ids):
            moto_instance: Any = self._account.ec2.get_instance(instance_id)
            former_address, former_host_name = str(moto_instance.private_ip), str(moto_instance.private_dns_name)
            self._instances.on_launch(instance_id)
            xml_text = xml_text.replace(f">{former_address}<", f">{moto_instance.private_ip}<").replace(
                f">{former_host_name}<", f">{moto_instance.private_dns_name}<"
            )
            if self._options.launch_tags_emit:
                self._tags.publish_changes({instance_id: {}})
        xml_text = re.sub(
            r"(<instanceState>\s*<code>)16(</code>\s*<name>)running(</name>)", r"\g<1>0\g<2>pending\g<3>", xml_text
        )
        return replace(answer, body=xml_text.encode())

    def _apply_scaling_effects(self, call: ApiCall, state_before: StateBeforeCall) -> None:
        if call.action == "CreateAutoScalingGroup":
            group = self._account.autoscaling.autoscaling_groups[call.form["AutoScalingGroupName"]]
            desired_capacity = call.integer_parameter("DesiredCapacity")
            group.desired_capacity = group.min_size if desired_capacity is None else desired_capacity
        if call.action == "PutLifecycleHook":
            self._groups.announce_hook(call.form["AutoScalingGroupName"], call.form["LifecycleHookName"])
        if state_before.group_members:
            self._groups.terminate_deleted_members(list(state_before.group_members))
        if not call.action.startswith("Describe"):
            self._groups.reconcile_groups()

    def _publish_events(self, call: ApiCall, answer: ApiAnswer) -> None:
        """Publish the events of a PutEvents call that moto accepted, with the event ids from moto's answer."""
        accepted_entries = json.loads(answer.body)["Entries"]
        for requested_entry, accepted_entry in zip(call.document["Entries"], accepted_entries, strict=True):
            if (
                "EventId" in accepted_entry
                and requested_entry.get("EventBusName", "default").rpartition("/")[2] == "default"
            ):
                origin = EventOrigin(
                    self._account.number,
                    self._account.region,
                    float(requested_entry.get("Time") or time.time()),
                    accepted_entry["EventId"],
                )
                detail = json.loads(requested_entry["Detail"])
                self._bus.publish(
                    events.event_envelope(
                        origin,
                        requested_entry["Source"],
                        requested_entry["DetailType"],
                        list(requested_entry.get("Resources", [])),
                        detail,
                    )
                )
