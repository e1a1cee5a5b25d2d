"""Which clusters there are, whose a group is, and how old what is known of that may be."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.alarms import POLICY_INVALID
from dyntrain.controller.loops.registry import CACHE_SECONDS, UNKNOWN_CLUSTER_CACHE_SECONDS, Registry
from fakes import World


def registered(world: World, place: str, **fields: object) -> None:
    policy = ClusterPolicy.model_validate({"cluster": place, **fields})
    world.parameters[f"/dyntrain/{place}/policy"] = policy.model_dump_json()


def test_a_policy_that_says_it_is_another_clusters_is_nobodys() -> None:
    """Copied and not edited, it would have two clusters share one's groups, nodes and target."""
    world = World("demo", max_workers=7)
    world.parameters["/dyntrain/copy/policy"] = world.parameters["/dyntrain/demo/policy"].replace(":7", ":9")
    assert {name: policy.max_workers for name, policy in world.registry.all().items()} == {"demo": 7}
    assert "'demo'" in world.registry.problems()["copy"]
    assert world.registry.policy("copy") is None
    registered(world, "copy")
    world.wait(CACHE_SECONDS)
    assert world.registry.problems() == {}
    assert world.registry.policy("copy") is not None


def test_a_group_that_two_clusters_register_is_the_first_ones_by_name_whoever_came_first() -> None:
    for order in (("a", "b"), ("b", "a")):
        world = World("other")
        for cluster in order:
            registered(world, cluster, groups=("shared", f"own-{cluster}"))
        assert world.registry.of_group("shared") == "a"
        assert world.registry.of_group("own-b") == "b"
        assert world.registry.of_group("nobodys") is None


@pytest.mark.parametrize("question", ["policy", "of_group"])
def test_what_is_not_known_is_read_again_soon_and_what_is_known_is_kept(question: str) -> None:
    """A cluster that has just been made is found within seconds, and a burst of events costs one read."""
    world = World("demo")
    assert world.registry.policy("demo") is not None
    reads = world.count("parameters.policies")

    def is_known() -> bool:
        if question == "policy":
            return world.registry.policy("new") is not None
        return world.registry.of_group("new-workers") is not None

    registered(world, "new", groups=("new-workers",))
    world.wait(UNKNOWN_CLUSTER_CACHE_SECONDS - 0.5)
    assert not is_known()
    assert world.count("parameters.policies") == reads
    world.wait(0.5)
    assert is_known()
    assert world.count("parameters.policies") == reads + 1
    del world.parameters["/dyntrain/new/policy"]
    world.wait(CACHE_SECONDS - 0.5)
    assert is_known()
    world.wait(0.5)
    assert not is_known()


def test_a_policy_of_another_stage_is_not_there_and_one_of_none_is_there_for_the_only_stage() -> None:
    world = World("demo")
    registered(world, "mine", stage="prod")
    registered(world, "theirs", stage="dev")
    seen = Registry(world.ports.parameters, world.ports.clock, "prod")
    assert set(seen.all()) >= {"mine"}
    assert "theirs" not in seen.all()
    assert "theirs" not in seen.problems()
    assert set(world.registry.all()) == {"demo", "mine", "theirs"}, "who asks for no stage sees all of them"


def test_a_cluster_that_nobody_looks_after_is_an_alarm_for_as_long_as_that_lasts() -> None:
    """Its launches are abandoned every quarter of an hour, and who looked at the alarms saw none."""
    world = World("demo")
    world.parameters["/dyntrain/bad/policy"] = '{"cluster": "bad", "min_workers": 20, "max_workers": 16}'
    for _ in range(2):
        world.resync()
        world.wait(60)
    assert world.metrics.count((POLICY_INVALID, "bad", 1)) == 2
    world.parameters["/dyntrain/bad/policy"] = '{"cluster": "bad", "min_workers": 2, "max_workers": 16}'
    world.resync()
    assert world.metrics.count((POLICY_INVALID, "bad", 1)) == 2


def test_an_invalid_policy_of_another_stage_is_that_ones_to_tell() -> None:
    world = World("demo")
    world.parameters["/dyntrain/theirs/policy"] = '{"cluster": "theirs", "stage": "dev", "min_workers": 0}'
    world.parameters["/dyntrain/torn/policy"] = '{"cluster": '
    assert set(Registry(world.ports.parameters, world.ports.clock, "prod").problems()) >= {"torn"}
    assert "theirs" not in Registry(world.ports.parameters, world.ports.clock, "prod").problems()
    assert "theirs" in Registry(world.ports.parameters, world.ports.clock, "dev").problems()
