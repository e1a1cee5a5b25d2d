"""The checks of `dyntrain doctor`. Each check turns readings of AWS into findings with a verdict and a remedy. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.cli.answers.unmanaged import unmanaged_message
from dyntrain.controller.cli.doctor.gpus import gpu_verdict
from dyntrain.controller.cli.doctor.observations import (
    ClusterSeen,
    GroupSeen,
    ImageSeen,
    Readings,
    StackSeen,
    TemplateSeen,
    Unread,
)
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG, ClusterPolicy, NodeConfig, is_base_value
from dyntrain.controller.contract.metadata_tags import refused_keys
from dyntrain.controller.contract.region_keys import UNVERIFIED, identity_setting_kind, trusted_keys, unverified_cause
from dyntrain.controller.contract.stage import Stage, chosen_stage, stage_names, stage_parameter
from dyntrain.controller.contract.wrong_fields import wrong_fields
from pydantic import ValidationError

SETTLED_STATUSES = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE")  # of a CloudFormation stack
HOOK_KINDS = {  # by lifecycle transition
    "autoscaling:EC2_INSTANCE_LAUNCHING": "launch",
    "autoscaling:EC2_INSTANCE_TERMINATING": "terminate",
}


@dataclass(frozen=True)
class Finding:  # of `dyntrain doctor`
    """One line of the output of `dyntrain doctor`. The verdict is `unknown` if a reading of AWS is missing or cannot be
    judged.
    """

    what: str  # the thing that was checked
    verdict: Literal["ok", "wrong", "unknown"]
    says: str  # the reason for the verdict, and a remedy


def diagnosis(readings: Readings) -> tuple[Finding, ...]:
    return tuple(_findings(readings))


def _findings(readings: Readings) -> Iterator[Finding]:
    yield _presence_finding("region", readings.region)
    yield _presence_finding("credentials", readings.caller)
    if isinstance(readings.caller, Unread):
        return  # all other readings failed for the same reason
    stage = yield from _stage_findings(readings)
    region = "" if isinstance(readings.region, Unread) else readings.region
    yield from _controller_findings(readings, stage)
    if stage is not None:
        yield _identity_finding_of_controller(stage, region)
    yield _rights_finding("permissions", readings.denied, "you")
    if isinstance(readings.clusters, Unread):
        yield _unread_finding("clusters", readings.clusters)
    elif not readings.clusters:
        yield Finding("clusters", "unknown", "none is registered in this region")
    else:
        for name, cluster in sorted(readings.clusters.items()):
            yield from _cluster_findings(name, cluster, stage, region)


def _presence_finding(subject: str, value: str | Unread) -> Finding:
    return Finding(subject, "wrong", value.why) if isinstance(value, Unread) else Finding(subject, "ok", value)


def _unread_finding(subject: str, value: Unread) -> Finding:
    return Finding(subject, "unknown", f"not read: {value.why}")


def _rights_finding(subject: str, denied: tuple[str, ...] | Unread, holder: str) -> Finding:
    if isinstance(denied, Unread):
        return _unread_finding(subject, denied)
    if denied:
        return Finding(
            subject, "wrong", f"{holder} may not {', '.join(denied)}: a policy or a boundary of the account forbids it"
        )
    return Finding(subject, "ok", f"{holder} may call every needed action, as far as IAM simulates it")


# ---- the controller


def _stage_findings(readings: Readings) -> Generator[Finding, None, Stage | None]:
    """Yield findings about the stage and return the stage, or None if no stage could be chosen."""
    if isinstance(readings.stages, Unread):
        yield _unread_finding("stage", readings.stages)
        return None
    try:
        stage = chosen_stage(readings.stages, readings.wanted_stage)
    except Misconfigured as error:
        yield Finding("stage", "wrong", str(error))
        return None
    suffixes_by_stage = {
        name: readings.stages.get(stage_parameter(name, "suffix"), "") for name in stage_names(readings.stages)
    }
    ambiguous_stages = [
        name
        for name, suffix in suffixes_by_stage.items()
        if name != stage.name and _suffixes_clash(suffix, stage.elastic.suffix)
    ]
    if ambiguous_stages:
        yield Finding(
            "stage",
            "wrong",
            f"the suffix {stage.elastic.suffix} of {stage.name} and {suffixes_by_stage[ambiguous_stages[0]]} of "
            f"{ambiguous_stages[0]} end alike: one tag can mean two clusters; deploy one stage with another suffix",
        )
    elif not readings.stages.get(stage_parameter(str(stage.name), "tables")):
        yield Finding(
            "stage", "wrong", f"{stage.name} is of an earlier release: run make deploy, then update the clusters"
        )
    else:
        yield Finding("stage", "ok", f"{stage.name}, table {stage.table}, suffix {stage.elastic.suffix}")
    return stage


def _suffixes_clash(first: str, second: str) -> bool:
    """Whether one of two tag suffixes ends with the other suffix, so that a tag could name clusters of two stages.

    Equal suffixes are harmless, because each cluster belongs to one stage.
    """
    if first == second or not (first and second):
        return False
    return first.endswith(second) or second.endswith(first)


def _controller_findings(readings: Readings, stage: Stage | None) -> Iterator[Finding]:
    yield _stack_finding("controller's stack", readings.stack, "run make deploy")
    if isinstance(readings.table, Unread):
        yield _unread_finding("table", readings.table)
    elif readings.table == "ACTIVE":
        yield Finding("table", "ok", "active")
    elif stage is not None:
        table_state = "does not exist" if readings.table is None else f"is {readings.table}"
        yield Finding("table", "wrong", f"{stage.table} {table_state}: run make deploy, which creates a table")
    if isinstance(readings.alarms, Unread):
        yield _unread_finding("alarms", readings.alarms)
    elif readings.alarms:
        for name, description in sorted(readings.alarms.items()):
            yield Finding("alarms", "wrong", f"{name}: {description}")
    else:
        yield Finding("alarms", "ok", "none is raised")


def _identity_finding_of_controller(stage: Stage, region: str) -> Finding:
    subject = "identity keys"
    if not stage.identity:
        return Finding(subject, "unknown", "the stage does not name the keys of identity documents: run make deploy")
    return _identity_finding(subject, stage.identity, region, "any principal that may put events")


def _identity_finding(subject: str, setting: str, region: str, impostor: str) -> Finding:
    """Judge how the identity of reporting nodes is verified. `setting` contains AWS's public keys, or a keyword in
    place of keys.
    """
    if reason := unverified_cause(setting, region):
        identity_text = (
            f"unverified, {reason}: {impostor} can speak for any node; see controller/DEPLOY.md, Verified identities"
        )
        return Finding(subject, "ok" if identity_setting_kind(setting) == UNVERIFIED else "unknown", identity_text)
    return Finding(subject, "ok", "nodes prove which instance they are")


def _stack_finding(subject: str, stack: StackSeen | Unread | None, remedy: str) -> Finding:
    if isinstance(stack, Unread):
        return _unread_finding(subject, stack)
    if stack is None:
        return Finding(subject, "wrong", f"the stack does not exist: {remedy}")
    if stack.failed:
        resource_name, reason = sorted(stack.failed.items())[0]
        return Finding(subject, "wrong", f"{stack.status}; {resource_name} failed: {reason}")
    if stack.status not in SETTLED_STATUSES:
        is_in_progress = stack.status.endswith("_IN_PROGRESS")
        status_text = (
            "CloudFormation is at work: run the doctor again later"
            if is_in_progress
            else f"see its events, then {remedy}"
        )
        return Finding(subject, "wrong", f"{stack.status}: {status_text}")
    return Finding(subject, "ok", stack.status)


# ---- a cluster


def _cluster_findings(name: str, cluster: ClusterSeen, stage: Stage | None, region: str) -> Iterator[Finding]:
    if cluster.stack is None:
        yield Finding(
            f"{name}: stack", "unknown", "no stack has the cluster's name: the cluster was registered by hand"
        )
    else:
        yield _stack_finding(f"{name}: stack", cluster.stack, "update it")
    if (
        isinstance(cluster.stack, StackSeen)
        and "WorkerGroup" in cluster.stack.resources
        and "WorkerRole" not in cluster.stack.resources
    ):
        role_text = "added workers may do what base nodes may, as in an earlier release: update the cluster's stack"
        yield Finding(f"{name}: role of workers", "wrong", role_text)
    policy: ClusterPolicy | None = None
    if isinstance(cluster.parameters, Unread):
        yield _unread_finding(f"{name}: parameters", cluster.parameters)
    else:
        policy = yield from _policy_findings(name, cluster.parameters.get("policy"), stage)
        yield from _node_parameter_findings(name, cluster.parameters.get("node"), stage, region)
        yield from _publication_findings(name, cluster.parameters)
    yield from _group_findings(name, cluster.groups, policy, stage)
    yield from _template_findings(name, cluster.template, stage)
    if (gpu_finding := gpu_verdict(cluster, policy)) is not None:
        yield Finding(f"{name}: GPUs", *gpu_finding)
    yield from _image_and_wheel_findings(name, cluster)
    yield _rights_finding(f"{name}: permissions of nodes", cluster.denied, "the nodes' role")


def _policy_findings(
    name: str, text: str | None, stage: Stage | None
) -> Generator[Finding, None, ClusterPolicy | None]:
    subject = f"{name}: policy"
    if text is None:
        yield Finding(subject, "wrong", f"/dyntrain/{name}/policy does not exist: dyntrain cluster create {name}")
        return None
    try:
        policy = ClusterPolicy.model_validate_json(text)
    except ValidationError as error:
        yield Finding(subject, "wrong", unmanaged_message(name, wrong_fields(error, "policy")))
        return None
    if policy.cluster != name:
        yield Finding(subject, "wrong", f"/dyntrain/{name}/policy names another cluster, {policy.cluster}")
    elif stage is not None and policy.stage not in (None, stage.name):
        yield Finding(
            subject,
            "unknown",
            f"the controller of stage {policy.stage} serves this cluster, not the one of {stage.name}",
        )
    else:
        workers_text = f"{policy.min_workers} to {policy.max_workers} workers"
        yield Finding(subject, "ok", f"{workers_text}, groups {', '.join(policy.groups) or 'none'}")
    return policy


def _node_parameter_findings(name: str, text: str | None, stage: Stage | None, region: str) -> Iterator[Finding]:
    subject = f"{name}: node parameter"
    if text is None:
        yield Finding(
            subject, "wrong", f"/dyntrain/{name}/node does not exist, so no node starts: update the cluster's stack"
        )
        return
    try:
        node_config = NodeConfig.model_validate_json(text)
    except ValidationError as error:
        yield Finding(subject, "wrong", f"/dyntrain/{name}/node cannot be read: {wrong_fields(error, 'JSON')}")
        return
    if (
        stage is not None
        and node_config.elastic_suffix != stage.elastic.suffix
        and node_config.stage in (None, stage.name)
    ):
        yield Finding(
            subject,
            "wrong",
            f"nodes look for tags that end in {node_config.elastic_suffix}, and the controller for "
            f"{stage.elastic.suffix}: update the cluster's stack",
        )
    else:
        yield Finding(
            subject, "ok", f"{node_config.workers} nodes at the start, volume {node_config.volume or node_config.mount}"
        )
    subject = f"{name}: identity keys"
    try:
        trusted_keys(node_config.identity_keys, region)
    except ValueError as error:
        yield Finding(subject, "wrong", f"the template's parameter IdentityKeys {error}")
    else:
        yield _identity_finding(subject, node_config.identity_keys, region, "any holder of the cluster's token")


def _publication_findings(name: str, values: Mapping[str, str]) -> Iterator[Finding]:
    if "target" not in values:
        target_text = "no target was published: no base node is prepared yet; see dyntrain status for the reasons"
        yield Finding(f"{name}: target", "wrong", target_text)
    else:
        yield Finding(f"{name}: target", "ok", "published")
    missing_parameters = [leaf_name for leaf_name in ("coordinator", "token") if leaf_name not in values]
    if missing_parameters:
        coordinator_text = (
            f"/dyntrain/{name}/{missing_parameters[0]} does not exist: no coordinator has started; see the master's log"
        )
        yield Finding(f"{name}: coordinator", "wrong", coordinator_text)
    else:
        yield Finding(f"{name}: coordinator", "ok", "has published its address and token")


def _group_findings(
    name: str, groups: Mapping[str, GroupSeen] | Unread, policy: ClusterPolicy | None, stage: Stage | None
) -> Iterator[Finding]:
    if isinstance(groups, Unread):
        yield _unread_finding(f"{name}: groups", groups)
        return
    for group in policy.groups if policy is not None else ():
        seen_group = groups.get(group)
        subject = f"{name}: group {group}"
        if seen_group is None:
            yield Finding(subject, "wrong", "the group does not exist: create it, or delete it from the policy")
            continue
        problem = _group_problem(name, seen_group, stage)
        size_text = (
            f"{seen_group.in_service} of {seen_group.desired} in service, {seen_group.minimum} to {seen_group.maximum}"
        )
        yield Finding(subject, "wrong", problem) if problem else Finding(subject, "ok", size_text)


def _group_problem(name: str, group: GroupSeen, stage: Stage | None) -> str:
    if group.tags.get(OWNER_TAG) != name:
        return f"its tag {OWNER_TAG} is not {name}, so the controller may not change the group: set the tag"
    missing_hook_kinds = [hook_kind for transition, hook_kind in HOOK_KINDS.items() if transition not in group.hooks]
    if missing_hook_kinds:
        hook_kind = missing_hook_kinds[0]
        consequence = _consequence_without_hook(hook_kind)
        return f"the group has no {hook_kind} hook, so instances {consequence}: update the cluster's stack"
    is_base_group = is_base_value(group.tags.get(BASE_TAG))
    if is_base_group and group.abandons:
        return "its launch hook ends a base node that does not report, and the group launches another: update the stack"
    if stage is not None and not is_base_group and stage.elastic.of(name) not in group.tags:
        return f"the group does not give its instances the tag {stage.elastic.of(name)}, so none of them joins"
    if refused_tag_keys := refused_keys(group.handed_on):
        return _refused_tag_text(refused_tag_keys[0])
    if group.in_service < group.desired:
        return f"{group.in_service} of {group.desired} are in service: see the group's activities, and dyntrain status"
    return ""


def _refused_tag_text(key: str) -> str:
    return f"no instance can be launched with the tag '{key}': in instance metadata, keys have no space and no /"


def _consequence_without_hook(kind: str) -> str:
    return "count as in service before they are prepared" if kind == "launch" else "end before they can leave the job"


def _template_findings(name: str, template: TemplateSeen | Unread | None, stage: Stage | None) -> Iterator[Finding]:
    subject = f"{name}: launch template"
    if isinstance(template, Unread):
        yield _unread_finding(subject, template)
    elif template is None:
        yield Finding(subject, "unknown", "no such template exists: single workers cannot be launched from it")
    elif stage is not None and stage.elastic.of(name) not in template.instance_tags:
        tag_key = stage.elastic.of(name)
        yield Finding(
            subject, "wrong", f"the template's instances do not carry the tag {tag_key}: update the cluster's stack"
        )
    elif refused_tag_keys := refused_keys(template.instance_tags):
        yield Finding(subject, "wrong", _refused_tag_text(refused_tag_keys[0]))
    else:
        yield Finding(subject, "ok", "the template's instances join by themselves")


def _image_size_finding(subject: str, image: ImageSeen, template: TemplateSeen | Unread | None) -> Finding:
    template_volumes = template.volumes if isinstance(template, TemplateSeen) else {}
    for device, image_size in sorted(image.volumes.items()):
        if template_volumes.get(device, image_size) < image_size:
            sizes_text = f"the image needs {image_size} GiB on {device}, VolumeSize gives {template_volumes[device]}"
            volume_text = f"{sizes_text}: update the stack"
            return Finding(subject, "wrong", volume_text)
    return Finding(subject, "ok", "available")


def _image_and_wheel_findings(name: str, cluster: ClusterSeen) -> Iterator[Finding]:
    if isinstance(cluster.image, Unread):
        yield _unread_finding(f"{name}: image", cluster.image)
    elif cluster.image is not None and cluster.image.state == "available":
        yield _image_size_finding(f"{name}: image", cluster.image, cluster.template)
    elif cluster.template:
        image_state = cluster.image.state if cluster.image is not None else "gone"
        yield Finding(
            f"{name}: image",
            "wrong",
            f"the image is {image_state}, so no instance can be launched: update the cluster's stack",
        )
    if isinstance(cluster.wheel, Unread):
        yield _unread_finding(f"{name}: wheel", cluster.wheel)
    elif cluster.wheel is None:
        yield Finding(f"{name}: wheel", "unknown", "the wheel is not in S3, so the doctor cannot check it")
    elif cluster.wheel:
        yield Finding(f"{name}: wheel", "ok", "the wheel is at the address in PackageSource")
    else:
        wheel_text = "the wheel is not at the address in the template's PackageSource: copy it there (make wheel)"
        yield Finding(f"{name}: wheel", "wrong", wheel_text)
