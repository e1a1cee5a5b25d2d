"""A target counts as published when it is what the parameter holds: whatever other runs do between any two steps.

The coordinator reads the parameter alone. What counts as published and is not there is never written again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from dyntrain.controller.contract.errors import DisputedTarget, RetryLater
from dyntrain.controller.core.decisions.actions import PublishTarget
from dyntrain.controller.core.decisions.alarms import TARGET_DISPUTED
from dyntrain.controller.core.planning import decide
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.publish import publish
from fakes import World, running_cluster

PARAMETER = "/dyntrain/demo/target"
STEPS = (
    "clusters.get",
    "parameters.target",
    "parameters.put_target",
    "parameters.target",
    "clusters.get",
    "clusters.put",
)
BEFORE_THE_LOOK = range(4)


def decided(world: World) -> int:
    """A new revision is settled in the table and not published yet."""
    stored = world.ports.clusters.get("demo")
    old = stored.membership
    new = old.model_copy(update={"revision": old.revision + 1, "members": (*old.members, f"i-{old.revision:08x}")})
    world.ports.clusters.put("demo", replace(stored, membership=new))
    return new.revision


def interrupted(world: World, step: int, by: Callable[[], object]) -> None:
    """`by` happens once, before that step of the next publication."""
    at = STEPS[:step].count(STEPS[step])
    world.before = {STEPS[step]: [*[lambda: None] * at, by]}


def holds(world: World) -> tuple[int, int]:
    """The revisions in the parameter and in the table's note of it."""
    return world.target().revision, world.ports.clusters.get("demo").published


def overwrites(world: World, text: str | None) -> Callable[[], None]:
    def by() -> None:
        world.parameters.pop(PARAMETER, None)
        if text is not None:
            world.parameters[PARAMETER] = text

    return by


@pytest.mark.parametrize("step", BEFORE_THE_LOOK)
@pytest.mark.parametrize("what", ["an older revision", "nothing", "no target"])
def test_what_a_slower_run_overwrote_is_written_once_more_before_it_counts(step: int, what: str) -> None:
    world, _, _ = running_cluster(1)
    text = {"an older revision": world.parameters[PARAMETER], "nothing": None, "no target": "{}"}[what]
    revision = decided(world)
    interrupted(world, step, overwrites(world, text))
    assert publish(world.ports, "demo", revision) == world.ports.clusters.get("demo").membership
    assert holds(world) == (revision, revision)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_whoever_is_overtaken_at_any_step_leaves_the_newest_revision_behind(step: int) -> None:
    world, _, _ = running_cluster(1)
    revision = decided(world)
    interrupted(world, step, lambda: publish(world.ports, "demo", decided(world)))
    publish(world.ports, "demo", revision)
    assert holds(world) == (revision + 1, revision + 1)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_revision_that_is_decided_meanwhile_is_published_too_or_not_said_to_be(step: int) -> None:
    world, _, _ = running_cluster(1)
    revision = decided(world)
    interrupted(world, step, lambda: decided(world))
    done = publish(world.ports, "demo", revision)
    assert done is not None
    assert holds(world) == (done.revision, done.revision) == (revision + 1, revision + 1)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_another_write_of_the_clusters_item_costs_one_more_look(step: int) -> None:
    world, _, _ = running_cluster(1)
    revision = decided(world)
    interrupted(world, step, lambda: world.ports.clusters.put("demo", world.ports.clusters.get("demo")))
    publish(world.ports, "demo", revision)
    assert holds(world) == (revision, revision)


def test_what_is_overwritten_each_time_is_left_to_the_next_pass_and_does_not_count() -> None:
    world, _, _ = running_cluster(1)
    older = world.parameters[PARAMETER]
    revision = decided(world)
    put = world.ports.parameters.put_target

    def lost(*arguments: object) -> None:
        put(*arguments)  # type: ignore[arg-type]
        world.parameters[PARAMETER] = older

    world.ports.parameters.put_target = lost  # type: ignore[method-assign,assignment]
    with pytest.raises(RetryLater):
        publish(world.ports, "demo", revision)
    assert holds(world) == (revision - 1, revision - 1)
    world.ports.parameters.put_target = put  # type: ignore[method-assign]
    world.resync()
    assert holds(world) == (world.target().revision,) * 2
    assert world.target().revision >= revision


@pytest.mark.parametrize("step", [0, 1, 3])
def test_another_content_of_the_same_revision_is_told_of_and_not_overwritten(step: int) -> None:
    world, _, _ = running_cluster(1)
    revision = decided(world)
    theirs = world.ports.clusters.get("demo").membership.model_copy(update={"members": ("i-0000000f",)}).target
    interrupted(world, step, overwrites(world, theirs.model_dump_json()))
    with pytest.raises(DisputedTarget):
        publish(world.ports, "demo", revision)
    assert world.target() == theirs
    assert world.ports.clusters.get("demo").published == revision - 1
    assert [name for name, _, _ in world.metrics] == [TARGET_DISPUTED]


def test_a_revision_that_the_table_has_lost_is_not_published_as_another() -> None:
    world, _, _ = running_cluster(1)
    revision = decided(world)
    before = holds(world)
    with pytest.raises(RetryLater):
        publish(world.ports, "demo", revision + 1)
    assert holds(world) == before


def test_what_counts_as_published_and_is_not_there_is_written_and_what_a_later_one_replaced_is_not() -> None:
    world, _, _ = running_cluster(1)
    older = world.parameters[PARAMETER]
    revision = decided(world)
    publish(world.ports, "demo", revision)
    world.parameters[PARAMETER] = older
    assert publish(world.ports, "demo", revision - 1) is None
    assert world.target().revision == revision - 1
    assert publish(world.ports, "demo", revision) is not None
    assert holds(world) == (revision, revision)


@pytest.mark.parametrize(("ahead", "again"), [(-1, True), (0, False), (1, True)])
def test_a_pass_publishes_unless_its_own_revision_is_there(ahead: int, again: bool) -> None:
    """Also what is said to be there and is above it: of a table from a backup."""
    world, _, _ = running_cluster(1)
    stored = world.ports.clusters.get("demo")
    facts = [node.facts for node in world.ports.nodes.of_cluster("demo").values()]
    heard, _ = world.ports.jobs.get("demo")
    published = stored.membership.revision + ahead
    decision = decide(facts, stored.membership, heard, world.rules(), world.now, published)
    assert any(isinstance(action, PublishTarget) for action in decision.actions) == again
    nobody = decide([], Membership(), None, world.rules(), world.now, ahead)
    assert nobody.actions == (), "a cluster that never had a member has no target"
