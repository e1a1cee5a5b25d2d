"""The doctor's judgement of its readings. Pure: each check gives lines, each line is fine or says what to do."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.cli.answers.unmanaged import unmanaged
from dyntrain.controller.cli.doctor.gpus import judged
from dyntrain.controller.cli.doctor.observations import (
    ClusterSeen,
    GroupSeen,
    ImageSeen,
    Seen,
    StackSeen,
    TemplateSeen,
    Unread,
)
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    OWNER_TAG,
    ClusterPolicy,
    NodeConfig,
    is_base_value,
)
from dyntrain.controller.contract.metadata_tags import refused_keys
from dyntrain.controller.contract.region_keys import UNVERIFIED, kind_of, trusted_keys, unverified_cause
from dyntrain.controller.contract.stage import Stage, chosen_stage, stage_names, stage_parameter
from dyntrain.controller.contract.wrong_fields import wrong_fields
from pydantic import ValidationError

SETTLED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE")
HOOKS = {
    "autoscaling:EC2_INSTANCE_LAUNCHING": "launch",
    "autoscaling:EC2_INSTANCE_TERMINATING": "terminate",
}


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis. `unknown`: it could not be read, or cannot be judged from here."""

    what: str
    verdict: Literal["ok", "wrong", "unknown"]
    says: str


def diagnosis(readings: Seen) -> tuple[Finding, ...]:
    return tuple(_lines(readings))


def _lines(readings: Seen) -> Iterator[Finding]:
    yield _given("region", readings.region)
    yield _given("credentials", readings.caller)
    if isinstance(readings.caller, Unread):
        return  # every other line would say the same again
    stage = yield from _stage(readings)
    region = "" if isinstance(readings.region, Unread) else readings.region
    yield from _controller(readings, stage)
    if stage is not None:
        yield _identity_of_controller(stage, region)
    yield _rights("permissions", readings.denied, "you")
    if isinstance(readings.clusters, Unread):
        yield _unknown("clusters", readings.clusters)
    elif not readings.clusters:
        yield Finding("clusters", "unknown", "none is registered in this region")
    else:
        for name, cluster in sorted(readings.clusters.items()):
            yield from _cluster(name, cluster, stage, region)


def _given(what: str, value: str | Unread) -> Finding:
    return Finding(what, "wrong", value.why) if isinstance(value, Unread) else Finding(what, "ok", value)


def _unknown(what: str, value: Unread) -> Finding:
    return Finding(what, "unknown", f"not looked at: {value.why}")


def _rights(what: str, denied: tuple[str, ...] | Unread, who: str) -> Finding:
    if isinstance(denied, Unread):
        return _unknown(what, denied)
    if denied:
        return Finding(
            what, "wrong", f"{who} may not {', '.join(denied)}: a policy or a boundary of the account forbids it"
        )
    return Finding(what, "ok", f"{who} may do what is needed, as far as IAM simulates it")


# ---- the controller


def _stage(readings: Seen) -> Generator[Finding, None, Stage | None]:
    """Judge the stage. Returns it, or None when there is none."""
    if isinstance(readings.stages, Unread):
        yield _unknown("stage", readings.stages)
        return None
    try:
        stage = chosen_stage(readings.stages, readings.wanted_stage)
    except Misconfigured as error:
        yield Finding("stage", "wrong", str(error))
        return None
    suffixes = {name: readings.stages.get(stage_parameter(name, "suffix"), "") for name in stage_names(readings.stages)}
    alike = [
        name for name, suffix in suffixes.items() if name != stage.name and _ambiguous(suffix, stage.elastic.suffix)
    ]
    if alike:
        yield Finding(
            "stage",
            "wrong",
            f"the suffix {stage.elastic.suffix} of {stage.name} and {suffixes[alike[0]]} of {alike[0]} end alike: one "
            "tag can mean two clusters; deploy one of them with another suffix",
        )
    elif not readings.stages.get(stage_parameter(str(stage.name), "tables")):
        yield Finding(
            "stage", "wrong", f"{stage.name} is of an earlier release: run make deploy, then update the clusters"
        )
    else:
        yield Finding("stage", "ok", f"{stage.name}, table {stage.table}, suffix {stage.elastic.suffix}")
    return stage


def _ambiguous(one: str, other: str) -> bool:
    """Whether one suffix ends with the other, so that a tag could belong to both. Equal ones are harmless: each cluster
    belongs to one stage.
    """
    return one != other and bool(one and other) and (one.endswith(other) or other.endswith(one))


def _controller(readings: Seen, stage: Stage | None) -> Iterator[Finding]:
    yield _stack("controller's stack", readings.stack, "run make deploy")
    if isinstance(readings.table, Unread):
        yield _unknown("table", readings.table)
    elif readings.table == "ACTIVE":
        yield Finding("table", "ok", "active")
    elif stage is not None:
        state = "does not exist" if readings.table is None else f"is {readings.table}"
        yield Finding("table", "wrong", f"{stage.table} {state}: run make deploy, which makes one and says its name")
    if isinstance(readings.alarms, Unread):
        yield _unknown("alarms", readings.alarms)
    elif readings.alarms:
        for name, description in sorted(readings.alarms.items()):
            yield Finding("alarms", "wrong", f"{name}: {description}")
    else:
        yield Finding("alarms", "ok", "none is raised")


def _identity_of_controller(stage: Stage, region: str) -> Finding:
    what = "identity keys"
    if not stage.identity:
        return Finding(what, "unknown", "the controller does not say whose signatures it believes: run make deploy")
    return _identity(what, stage.identity, region, "whoever may put events")


def _identity(what: str, setting: str, region: str, who: str) -> Finding:
    """Judge how reports are verified: `setting` holds keys, or a word in their place."""
    if why := unverified_cause(setting, region):
        says = f"unverified, {why}: {who} is taken at its word; controller/DEPLOY.md, Verified identities"
        return Finding(what, "ok" if kind_of(setting) == UNVERIFIED else "unknown", says)
    return Finding(what, "ok", "nodes prove which instance they are")


def _stack(what: str, stack: StackSeen | Unread | None, otherwise: str) -> Finding:
    if isinstance(stack, Unread):
        return _unknown(what, stack)
    if stack is None:
        return Finding(what, "wrong", f"there is none: {otherwise}")
    if stack.failed:
        name, why = sorted(stack.failed.items())[0]
        return Finding(what, "wrong", f"{stack.status}; {name} failed: {why}")
    if stack.status not in SETTLED:
        busy = stack.status.endswith("_IN_PROGRESS")
        says = "CloudFormation is at work: look again" if busy else f"see its events, then {otherwise}"
        return Finding(what, "wrong", f"{stack.status}: {says}")
    return Finding(what, "ok", stack.status)


# ---- a cluster


def _cluster(name: str, cluster: ClusterSeen, stage: Stage | None, region: str) -> Iterator[Finding]:
    if cluster.stack is None:
        yield Finding(f"{name}: stack", "unknown", "there is none of that name: the cluster was registered by hand")
    else:
        yield _stack(f"{name}: stack", cluster.stack, "update it")
    if (
        isinstance(cluster.stack, StackSeen)
        and "WorkerGroup" in cluster.stack.resources
        and "WorkerRole" not in cluster.stack.resources
    ):
        says = "added workers may do what base nodes may, as in an earlier release: update the cluster's stack"
        yield Finding(f"{name}: role of workers", "wrong", says)
    policy: ClusterPolicy | None = None
    if isinstance(cluster.parameters, Unread):
        yield _unknown(f"{name}: parameters", cluster.parameters)
    else:
        policy = yield from _policy(name, cluster.parameters.get("policy"), stage)
        yield from _node(name, cluster.parameters.get("node"), stage, region)
        yield from _published(name, cluster.parameters)
    yield from _groups(name, cluster.groups, policy, stage)
    yield from _template(name, cluster.template, stage)
    if (gpus := judged(cluster, policy)) is not None:
        yield Finding(f"{name}: GPUs", *gpus)
    yield from _image_and_wheel(name, cluster)
    yield _rights(f"{name}: permissions of nodes", cluster.denied, "the nodes' role")


def _policy(name: str, text: str | None, stage: Stage | None) -> Generator[Finding, None, ClusterPolicy | None]:
    what = f"{name}: policy"
    if text is None:
        yield Finding(what, "wrong", f"/dyntrain/{name}/policy does not exist: dyntrain cluster create {name}")
        return None
    try:
        policy = ClusterPolicy.model_validate_json(text)
    except ValidationError as error:
        yield Finding(what, "wrong", unmanaged(name, wrong_fields(error, "policy")))
        return None
    if policy.cluster != name:
        yield Finding(what, "wrong", f"/dyntrain/{name}/policy says it is of {policy.cluster}")
    elif stage is not None and policy.stage not in (None, stage.name):
        yield Finding(what, "unknown", f"served by the controller of stage {policy.stage}, not by {stage.name}")
    else:
        workers = f"{policy.min_workers} to {policy.max_workers} workers"
        yield Finding(what, "ok", f"{workers}, groups {', '.join(policy.groups) or 'none'}")
    return policy


def _node(name: str, text: str | None, stage: Stage | None, region: str) -> Iterator[Finding]:
    what = f"{name}: node parameter"
    if text is None:
        yield Finding(
            what, "wrong", f"/dyntrain/{name}/node does not exist, so no node starts: update the cluster's stack"
        )
        return
    try:
        node = NodeConfig.model_validate_json(text)
    except ValidationError as error:
        yield Finding(what, "wrong", f"/dyntrain/{name}/node cannot be read: {wrong_fields(error, 'JSON')}")
        return
    if stage is not None and node.elastic_suffix != stage.elastic.suffix and node.stage in (None, stage.name):
        yield Finding(
            what,
            "wrong",
            f"nodes look for tags that end in {node.elastic_suffix}, and the controller for {stage.elastic.suffix}: "
            "update the cluster's stack",
        )
    else:
        yield Finding(what, "ok", f"{node.workers} nodes at the start, volume {node.volume or node.mount}")
    what = f"{name}: identity keys"
    try:
        trusted_keys(node.identity_keys, region)
    except ValueError as error:
        yield Finding(what, "wrong", f"the template's parameter IdentityKeys {error}")
    else:
        yield _identity(what, node.identity_keys, region, "whoever has the cluster's token")


def _published(name: str, held: Mapping[str, str]) -> Iterator[Finding]:
    if "target" not in held:
        says = "no target was published: no base node is prepared yet; dyntrain status says what they wait for"
        yield Finding(f"{name}: target", "wrong", says)
    else:
        yield Finding(f"{name}: target", "ok", "published")
    missing = [leaf for leaf in ("coordinator", "token") if leaf not in held]
    if missing:
        says = f"/dyntrain/{name}/{missing[0]} is not there: no coordinator has begun; look at the master's log"
        yield Finding(f"{name}: coordinator", "wrong", says)
    else:
        yield Finding(f"{name}: coordinator", "ok", "has made itself known")


def _groups(
    name: str, groups: Mapping[str, GroupSeen] | Unread, policy: ClusterPolicy | None, stage: Stage | None
) -> Iterator[Finding]:
    if isinstance(groups, Unread):
        yield _unknown(f"{name}: groups", groups)
        return
    for group in policy.groups if policy is not None else ():
        live = groups.get(group)
        what = f"{name}: group {group}"
        if live is None:
            yield Finding(what, "wrong", "it does not exist: make it again, or take it out of the policy")
            continue
        problem = _group_problem(name, live, stage)
        size = f"{live.in_service} of {live.desired} in service, {live.minimum} to {live.maximum}"
        yield Finding(what, "wrong", problem) if problem else Finding(what, "ok", size)


def _group_problem(name: str, group: GroupSeen, stage: Stage | None) -> str:
    if group.tags.get(OWNER_TAG) != name:
        return f"its tag {OWNER_TAG} is not {name}, so the controller may not touch it: tag it"
    missing = [kind for transition, kind in HOOKS.items() if transition not in group.hooks]
    if missing:
        return f"it has no {missing[0]} hook, so instances {_without(missing[0])}: update the cluster's stack"
    base = is_base_value(group.tags.get(BASE_TAG))
    if base and group.abandons:
        return "its launch hook ends a base node that says nothing, and its group launches the next: update the stack"
    if stage is not None and not base and stage.elastic.of(name) not in group.tags:
        return f"it does not give its instances the tag {stage.elastic.of(name)}, so none of them joins"
    if refused := refused_keys(group.handed_on):
        return _no_launch(refused[0])
    if group.in_service < group.desired:
        return f"{group.in_service} of {group.desired} are in service: see the group's activities, and dyntrain status"
    return ""


def _no_launch(key: str) -> str:
    return f"no instance can be launched with its tag '{key}': in instance metadata, keys have no space and no /"


def _without(kind: str) -> str:
    return "count as in service before they are prepared" if kind == "launch" else "are gone before they could leave"


def _template(name: str, template: TemplateSeen | Unread | None, stage: Stage | None) -> Iterator[Finding]:
    what = f"{name}: launch template"
    if isinstance(template, Unread):
        yield _unknown(what, template)
    elif template is None:
        yield Finding(what, "unknown", "there is none: people cannot add workers one by one")
    elif stage is not None and stage.elastic.of(name) not in template.instance_tags:
        key = stage.elastic.of(name)
        yield Finding(what, "wrong", f"its instances do not carry the tag {key}: update the cluster's stack")
    elif refused := refused_keys(template.instance_tags):
        yield Finding(what, "wrong", _no_launch(refused[0]))
    else:
        yield Finding(what, "ok", "its instances join by themselves")


def _fits(what: str, image: ImageSeen, template: TemplateSeen | Unread | None) -> Finding:
    volumes = template.volumes if isinstance(template, TemplateSeen) else {}
    for device, least in sorted(image.volumes.items()):
        if volumes.get(device, least) < least:
            says = (
                f"it needs {least} GiB on {device}, and VolumeSize gives {volumes[device]}: update the cluster's stack"
            )
            return Finding(what, "wrong", says)
    return Finding(what, "ok", "available")


def _image_and_wheel(name: str, cluster: ClusterSeen) -> Iterator[Finding]:
    if isinstance(cluster.image, Unread):
        yield _unknown(f"{name}: image", cluster.image)
    elif cluster.image is not None and cluster.image.state == "available":
        yield _fits(f"{name}: image", cluster.image, cluster.template)
    elif cluster.template:
        state = cluster.image.state if cluster.image is not None else "gone"
        yield Finding(
            f"{name}: image", "wrong", f"it is {state}, so nothing can be launched: update the cluster's stack"
        )
    if isinstance(cluster.wheel, Unread):
        yield _unknown(f"{name}: wheel", cluster.wheel)
    elif cluster.wheel is None:
        yield Finding(
            f"{name}: wheel", "unknown", "it does not come from S3: whether nodes reach it shows when they install"
        )
    elif cluster.wheel:
        yield Finding(f"{name}: wheel", "ok", "it is where PackageSource says")
    else:
        says = "it is not where the template's PackageSource says: copy it there (make wheel)"
        yield Finding(f"{name}: wheel", "wrong", says)
