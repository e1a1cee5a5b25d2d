"""Checked requests to change a cluster's size. Each request is described by a sentence and by an `aws` command. Pure.

A request changes tags or Auto Scaling groups. The controller reacts to every change of tags or groups, including
changes by other programs.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dyntrain.controller.cli.changing.restarts import Restart
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.contract.messages import BASE_TAG, ClusterPolicy
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.views.view import View
from dyntrain.controller.loops.ports import SeenInstance
from dyntrain.controller.pool.gather import group_of

ENDED_STATES = ("shutting-down", "terminated")
LEAVING_TEXT = "at the next boundary they leave the job, and are then terminated if the cluster launched them"


@dataclass(frozen=True)
class Resize:  # a request to change the desired capacity of a group
    cluster: str  # name of the cluster
    group: str  # name of the Auto Scaling group
    old_size: int  # desired capacity before the change
    new_size: int  # desired capacity after the change

    @property
    def sentence(self) -> str:  # describes the request
        if self.new_size == self.old_size:
            return f"{self.group} of {self.cluster} has a desired capacity of {self.new_size} already; nothing to do"
        increase = self.new_size - self.old_size
        effect_text = (
            f"{increase} more will be launched"
            if increase > 0
            else f"{-increase} will leave at the next boundary and be ended"
        )
        return f"the desired capacity of {self.group} goes from {self.old_size} to {self.new_size}: {effect_text}"

    @property
    def aws_command(self) -> str:
        group = shlex.quote(self.group)
        return (
            f"aws autoscaling set-desired-capacity --auto-scaling-group-name {group} --desired-capacity {self.new_size}"
        )


@dataclass(frozen=True)
class Tag:  # a request to tag machines as elastic workers
    cluster: str  # name of the cluster
    instances: tuple[str, ...]  # ids of the machines to tag
    key: str  # of the elastic tag

    @property
    def sentence(self) -> str:  # describes the request
        instance_names = ", ".join(self.instances)
        return (
            f"{instance_names} will carry the tag {self.key}: prepared, they join {self.cluster} at the next boundary"
        )

    @property
    def aws_command(self) -> str:
        return f"aws ec2 create-tags --resources {' '.join(self.instances)} --tags Key={self.key},Value="


@dataclass(frozen=True)
class Untag:  # a request that workers leave
    """A request that workers leave the job. The request deletes the workers' elastic tag. The `hurried` instances do
    not wait for a leave window of the cluster.
    """

    cluster: str  # name of the cluster
    instances: tuple[str, ...]  # ids of the instances that lose the tag
    key: str  # of the elastic tag
    hurried: tuple[str, ...] = ()  # instances that wait for no leave window

    @property
    def sentence(self) -> str:  # describes the request
        hurry_text = (
            f"{', '.join(self.hurried)} will carry the tag {LEAVE_TAG}={LEAVE_NOW} and wait for no leave window"
        )
        leave_text = f"{', '.join(self.instances)} will lose the tag {self.key}: {LEAVING_TEXT}"
        return "; ".join([*([hurry_text] if self.hurried else []), *([leave_text] if self.instances else [])])

    @property
    def aws_command(self) -> str:
        hurry_command = (
            f"aws ec2 create-tags --resources {' '.join(self.hurried)} --tags Key={LEAVE_TAG},Value={LEAVE_NOW}"
        )
        leave_command = f"aws ec2 delete-tags --resources {' '.join(self.instances)} --tags Key={self.key}"
        return " && ".join([*([hurry_command] if self.hurried else []), *([leave_command] if self.instances else [])])


@dataclass(frozen=True)
class Replace:  # a request to replace a base node
    """A request to replace the base node `old` by the node `new`. `profile` is the ARN of the base nodes' IAM instance
    profile, or None if `new` has this profile already.
    """

    cluster: str  # name of the cluster
    old: str  # instance id of the base node that leaves
    new: str  # instance id of the node that replaces it
    seen_within: float  # seconds until the controller has surely read the new tag
    profile: str | None = None  # ARN of the IAM instance profile that `new` gets
    bare: bool = False  # `new` has no IAM instance profile

    @property
    def sentence(self) -> str:  # describes the request
        return (
            f"{self.new} replaces {self.old} as a base node of {self.cluster}, at the first boundary after "
            f"{self.seen_within:.0f} s; {self.old} is then terminated if the cluster launched it"
            + ("; the new node gets the base nodes' instance profile" if self.profile else "")
        )

    @property
    def aws_command(self) -> str:
        tag_command = f"aws ec2 create-tags --resources {self.new} --tags Key={BASE_TAG},Value={self.old}"
        if self.profile is None:
            return tag_command
        if self.bare:
            profile_arguments = f"--instance-id {self.new} --iam-instance-profile Arn={self.profile}"
            return f"aws ec2 associate-iam-instance-profile {profile_arguments}\n  and: {tag_command}"
        association_query = (
            f"aws ec2 describe-iam-instance-profile-associations --filters Name=instance-id,Values={self.new} "
            "--query IamInstanceProfileAssociations[0].AssociationId --output text"
        )
        return (
            f"aws ec2 replace-iam-instance-profile-association --iam-instance-profile Arn={self.profile} "
            f'--association-id "$({association_query})"\n  and: {tag_command}'
        )


Request = Resize | Tag | Untag | Replace | Restart


def base_profile(new: str, base: Sequence[str], instances: Collection[SeenInstance]) -> str | None:
    """The IAM instance profile that `new` needs as a base node, or None if `new` has this profile already. The needed
    profile is taken from the first node in `base` that has a profile.
    """
    profiles_by_instance = {instance.instance: instance.profile for instance in instances}
    profile_of_base_nodes = next(
        (profiles_by_instance[base_node] for base_node in base if profiles_by_instance.get(base_node)), None
    )
    return None if profile_of_base_nodes == profiles_by_instance.get(new) else profile_of_base_nodes


def plan_resize(
    policy: ClusterPolicy,
    sizes: Mapping[str, GroupSize],
    chosen_group: str | None,
    *,
    to: int | None = None,
    increase: int = 0,
) -> Resize:
    """The request to resize the Auto Scaling group `chosen_group`, by default the cluster's only group of elastic
    workers. Raises GiveUp for a group that cannot be resized, and for a size outside the group's limits.
    """
    cluster = policy.cluster
    elastic_group_names = [group for group, size in sizes.items() if not size.base]
    if chosen_group is not None and chosen_group not in sizes:
        raise GiveUp(
            f"{chosen_group} is no group of {cluster} that exists (its groups: {_names_text(elastic_group_names)})"
        )
    if chosen_group is not None and chosen_group not in elastic_group_names:
        raise GiveUp(
            f"{chosen_group} launches base nodes, which are replaced (`dyntrain base replace`) and not scaled; groups "
            f"of elastic workers: {_names_text(elastic_group_names)}"
        )
    if not elastic_group_names:
        raise GiveUp(
            f"{cluster} has no Auto Scaling group of elastic workers: `dyntrain cluster create --replace --group` "
            f"registers one, `dyntrain add {cluster} --instance ID` adds a running machine"
        )
    if chosen_group is None and len(elastic_group_names) > 1:
        raise GiveUp(f"--group is missing: {cluster} has several groups ({_names_text(elastic_group_names)})")
    group = chosen_group if chosen_group is not None else elastic_group_names[0]
    if policy.pool is not None and group_of(policy) == group:
        raise GiveUp(f"only the reserved pool sets the size of {group}; see `dyntrain pool plan --cluster {cluster}`")
    group_size = sizes[group]
    new_size = to if to is not None else group_size.desired + increase
    if not group_size.minimum <= new_size <= group_size.maximum:
        size_range = f"between {group_size.minimum} and {group_size.maximum}"
        limit_name = "max" if new_size > group_size.maximum else "min"
        raise GiveUp(
            f"{group} may have {size_range} instances, not {new_size}: aws autoscaling update-auto-scaling-group "
            f"--auto-scaling-group-name {shlex.quote(group)} --{limit_name}-size {new_size}"
        )
    return Resize(cluster, group, group_size.desired, new_size)


def elastic_groups(policy: ClusterPolicy, sizes: Mapping[str, GroupSize]) -> dict[str, GroupSize]:
    """The Auto Scaling groups that a person may resize. Groups of base nodes and the group of the reserved pool are
    left out.
    """
    pool_group = group_of(policy) if policy.pool is not None else None
    return {group: size for group, size in sorted(sizes.items()) if not size.base and group != pool_group}


def plan_tag(cluster: str, ids: Sequence[str], instances: Collection[SeenInstance], key: str) -> Tag:
    """The request to tag machines as workers. Raises GiveUp for a machine that does not exist or is terminating."""
    instances_by_id = {described_instance.instance: described_instance for described_instance in instances}
    for instance in ids:
        if instance not in instances_by_id:
            raise GiveUp(f"EC2 has no instance {instance} in this region; check the id and the region")
        if instances_by_id[instance].state in ENDED_STATES:
            raise GiveUp(
                f"{instance} cannot be tagged: it is {instances_by_id[instance].state}; name a running machine"
            )
    untagged_instances = tuple(instance for instance in ids if key not in instances_by_id[instance].tags)
    if not untagged_instances:
        raise GiveUp(
            f"nothing to do, tagged for {cluster} already: {', '.join(ids)}; `dyntrain explain ID` shows what an "
            "instance waits for"
        )
    return Tag(cluster, untagged_instances, key)


def plan_untag(cluster: str, ids: Sequence[str], views: Collection[View], key: str, *, now: bool = False) -> Untag:
    """The request that workers leave the job. Raises GiveUp for an instance that is no elastic worker of the cluster.
    If `now` is true, workers that are already leaving are accepted.
    """
    views_by_id = {node_view.instance: node_view for node_view in views}
    for instance in ids:
        view = views_by_id.get(instance)
        if view is None:
            raise GiveUp(f"the controller does not know {instance} in {cluster}; `dyntrain status` lists the nodes")
        if view.terminated:
            raise GiveUp(f"{instance} cannot leave the job: the instance is terminated already")
        if view.base:
            raise GiveUp(
                f"{instance} is a base node, which is replaced and not removed: `dyntrain base replace {instance} NEW`"
            )
        if not view.elastic and not now:
            raise GiveUp(f"{instance} does not work for {cluster} any more; `dyntrain explain {instance}` says why")
    return Untag(
        cluster, tuple(instance for instance in ids if views_by_id[instance].elastic), key, tuple(ids) if now else ()
    )


def _names_text(groups: Collection[str]) -> str:
    return ", ".join(sorted(groups)) or "none"
