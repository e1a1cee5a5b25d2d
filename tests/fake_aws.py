"""EC2, Auto Scaling, the parameter store and the metrics of the tests' world, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dyntrain.controller.contract.errors import Refused, RetryLater
from dyntrain.controller.contract.messages import OWNER_TAG, Target
from dyntrain.controller.contract.stage import STAGES
from dyntrain.controller.core.records.facts import InstanceState, Market, Phase, Transition
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.views.target import as_parameter
from dyntrain.controller.loops.ports import Batch, SeenInstance, SeenMember

if TYPE_CHECKING:
    from fakes import World

START = 1_700_000_000.0


@dataclass
class Machine:
    """An EC2 instance as the fake EC2 knows it."""

    state: InstanceState = "running"
    tags: dict[str, str] = field(default_factory=dict)
    launched_at: float = START
    tag_version: int = 0
    profile: str | None = None
    template: str | None = None
    type: str = ""
    market: Market = "on-demand"


@dataclass
class Member:
    group: str
    phase: Phase = "in_service"
    waits: Transition | None = None
    protected: bool = False


class FakeParameters:
    def __init__(self, world: World) -> None:
        self.world = world

    def policies(self) -> Mapping[str, str]:
        self.world.called("parameters.policies")
        return {name.split("/")[2]: text for name, text in self.world.parameters.items() if name.endswith("/policy")}

    def stages(self) -> Mapping[str, str]:
        self.world.called("parameters.stages")
        return {name: text for name, text in self.world.parameters.items() if name.startswith(STAGES)}

    def target(self, cluster: str) -> str | None:
        self.world.called("parameters.target", cluster)
        return self.world.parameters.get(f"/dyntrain/{cluster}/target")

    def put_target(self, cluster: str, target: Target, pointer: str) -> None:
        self.world.called("parameters.put_target", cluster, str(target.revision))
        text = as_parameter(target, pointer)
        assert len(text.encode()) <= 4096, "a standard parameter takes 4 KB"
        self.world.parameters[f"/dyntrain/{cluster}/target"] = text

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        self.world.called("parameters.put_policy", cluster)
        name = f"/dyntrain/{cluster}/policy"
        if name in self.world.parameters and not overwrite:
            return False
        self.world.parameters[name] = text
        return True

    def delete(self, cluster: str) -> Sequence[str]:
        self.world.called("parameters.delete", cluster)
        names = sorted(name for name in self.world.parameters if name.startswith(f"/dyntrain/{cluster}/"))
        for name in names:
            del self.world.parameters[name]
        return names


class FakeInstances:
    def __init__(self, world: World) -> None:
        self.world = world

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        self.world.called("instances.tagged")
        wanted = set(keys)
        return [
            self._seen(name)
            for name, machine in self.world.machines.items()
            if wanted & set(machine.tags) and name not in self.world.hidden
        ]

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        self.world.called("instances.of_templates")
        wanted, instances = set(names), dict[str, list[SeenInstance]]()
        for name, machine in self.world.machines.items():
            if machine.template in wanted and name not in self.world.hidden:
                instances.setdefault(str(machine.template), []).append(self._seen(name))
        return instances

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        self.world.called("instances.by_id")
        return [self._seen(name) for name in instances if name in self.world.machines and name not in self.world.hidden]

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        self.world.called("instances.tag", key, value, *instances)
        if until is not None and self.world.now > until:
            raise RetryLater("not sent any more")
        refused = {name: self.world.refusing[name] for name in instances if name in self.world.refusing}
        for name in instances:
            if name in self.world.machines and name not in refused:
                self.world.tagged(name, key, value)
        return Batch(frozenset(name for name in instances if name not in self.world.machines), refused)

    def terminate(self, instances: Sequence[str]) -> Batch:
        self.world.called("instances.terminate", *instances)
        for name in instances:
            if name in self.world.machines:
                self.world.machines[name].state = "shutting-down"
        return Batch(frozenset(name for name in instances if name not in self.world.machines))

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        self.world.called("instances.untag", key, *instances)
        for name in instances:
            self.world.machines[name].tags.pop(key, None)
        return Batch()

    def start(self, instances: Sequence[str]) -> Batch:
        self.world.called("instances.start", *instances)
        for name in instances:
            self.world.machines[name].state = "running"
            self.world.machines[name].launched_at = self.world.now
        return Batch()

    def stop(self, instances: Sequence[str]) -> Batch:
        self.world.called("instances.stop", *instances)
        refused = {name: self.world.refusing[name] for name in instances if name in self.world.refusing}
        for name in instances:
            if name not in refused:
                self.world.machines[name].state = "stopped"
        return Batch(refused=refused)

    def reboot(self, instances: Sequence[str]) -> Batch:
        self.world.called("instances.reboot", *instances)
        return Batch()

    def give_profile(self, instance: str, profile: str) -> None:
        self.world.called("instances.give_profile", instance, profile)
        self.world.machines[instance].profile = profile

    def _seen(self, name: str) -> SeenInstance:
        machine = self.world.shown(name)
        address, kind = "10.0.0.7", machine.type
        tags = dict(machine.tags)
        return SeenInstance(
            name, machine.state, tags, machine.launched_at, address, machine.profile, kind, machine.market
        )


class FakeGroups:
    def __init__(self, world: World) -> None:
        self.world = world
        self.minimum_reached = False

    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]:
        self.world.called("groups.members")
        wanted = set(groups)
        return [
            SeenMember(name, m.group, m.phase, m.waits, m.protected)
            for name, m in self.world.membership.items()
            if m.group in wanted
        ]

    def hooks(self, group: str) -> Mapping[str, Transition]:
        self.world.called("groups.hooks", group)
        cluster = self.world.group_tags.get(group, group.removesuffix("-workers"))
        return {f"{cluster}-launch": "launch", f"{cluster}-terminate": "terminate"}

    def complete_action(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        self.world.called("groups.complete", instance, hook, token or "", result)
        if token in self.world.stale_tokens:
            return False
        member = self.world.membership.get(instance)
        if member is not None:
            member.waits = None
        return True

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        self.world.called("groups.heartbeat", instance, hook, token or "")
        return token not in self.world.stale_tokens

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        self.world.called("groups.terminate", instance, group)
        if self.minimum_reached:
            raise Refused("ValidationError", f"{group} is at its minimum size")
        if instance not in self.world.membership:
            return False
        self.world.membership[instance] = Member(group, "terminating", "terminate")
        if decrement and group in self.world.limits:
            minimum, maximum, desired = self.world.limits[group]
            self.world.limits[group] = (minimum, maximum, desired - 1)
        return True

    def protect(self, instances: Sequence[str], group: str) -> None:
        self.world.called("groups.protect", group, *instances)
        for name in instances:
            if name in self.world.membership:
                self.world.membership[name].protected = True

    def tagged(self, key: str) -> Mapping[str, str]:
        self.world.called("groups.tagged", key)
        return dict(self.world.group_tags) if key == OWNER_TAG else {}

    def of_own_stacks(self, key: str) -> Mapping[str, str]:
        self.world.called("groups.of_own_stacks", key)
        if key != OWNER_TAG:
            return {}
        return {group: of for group, of in self.world.group_tags.items() if self.world.group_stacks.get(group) == of}

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        self.world.called("groups.sizes", *groups)
        sizes = {}
        for group in groups:
            running = sum(
                member.group == group and member.phase in ("launching", "in_service")
                for member in self.world.membership.values()
            )
            minimum, maximum, desired = self.world.limits.get(group, (0, 100, running))
            sizes[group] = GroupSize(minimum, maximum, desired, running, launches=group not in self.world.suspended)
        return sizes

    def suspend_replacement(self, group: str) -> None:
        self.world.called("groups.suspend_replacement", group)

    def resume_replacement(self, group: str) -> None:
        self.world.called("groups.resume_replacement", group)

    def suspend_launches(self, group: str) -> None:
        self.world.called("groups.suspend_launches", group)
        self.world.suspended.add(group)

    def resume_launches(self, group: str) -> None:
        self.world.called("groups.resume_launches", group)
        self.world.suspended.discard(group)

    def set_desired(self, group: str, desired: int) -> None:
        self.world.called("groups.set_desired", group, str(desired))
        minimum, maximum, _ = self.world.limits.get(group, (0, 100, 0))
        if not minimum <= desired <= maximum:
            raise Refused("ValidationError", f"{desired} is not in {minimum}..{maximum} of {group}")
        self.world.limits[group] = (minimum, maximum, desired)


class FakeMetrics:
    def __init__(self, world: World) -> None:
        self.world = world

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        self.world.metrics.append((name, cluster, value))

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        self.world.gauges[cluster] = dict(values)
