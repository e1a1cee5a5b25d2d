"""Who is in the target: laws over any cluster, whoever its members are, whatever its nodes wish and its limits say."""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.contract.messages import BASE_TAG, NODE_TYPE_TAG, OWNER_TAG, ClusterPolicy
from dyntrain.controller.core.records.facts import NodeFacts, Preparation, TagsEvent
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership, TargetPlan, plan_target
from dyntrain.controller.core.views.view import Rules, View, view
from fake_aws import START
from fakes import ELASTIC, instance_id, running_cluster
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Kind:
    """What a node is: `prepared_at` None: not, or its preparation failed."""

    base: bool
    master: bool
    elastic: bool
    prepared_at: int | None
    ended: bool


KINDS = st.builds(
    Kind,
    base=st.sampled_from([False, False, False, True]),
    master=st.booleans(),
    elastic=st.sampled_from([True, True, True, False]),
    prepared_at=st.sampled_from([1, 2, 3, 4, 5, None]),
    ended=st.sampled_from([False, False, False, False, True]),
)
# Their numbers are shuffled, so that no order of names is by chance that of joining.
CLUSTERS = st.lists(KINDS, min_size=1, max_size=9).flatmap(
    lambda kinds: st.tuples(
        st.permutations(range(len(kinds))).map(lambda numbers: dict(zip(numbers, kinds, strict=True))),
        st.permutations(range(len(kinds))),
        st.integers(0, len(kinds)),
    )
)
LIMITS = st.tuples(st.integers(1, 4), st.integers(0, 5)).map(lambda limits: (limits[0], limits[0] + limits[1]))


def seen(number: int, kind: Kind, rules: Rules) -> View:
    tags = {OWNER_TAG: "demo"}
    if kind.base:
        tags[BASE_TAG] = "true"
    if kind.base and kind.master:
        tags[NODE_TYPE_TAG] = "Master"
    if kind.elastic and not kind.base:
        tags[ELASTIC.of("demo")] = ""
    prepared = None
    if kind.prepared_at is not None:
        prepared = Preparation(attempt=1, at=START + kind.prepared_at, outcome="prepared")
    facts = NodeFacts(
        instance=instance_id(number),
        tags_event=TagsEvent(version=1, at=START, tags=tags),
        preparation=prepared,
        terminated=kind.ended,
    )
    return view(facts, rules, START + 100)


def planned(
    cluster: tuple[dict[int, Kind], list[int], int], limits: tuple[int, int]
) -> tuple[Membership, dict[str, View], Rules, TargetPlan]:
    kinds, order, members = cluster
    rules = Rules(ClusterPolicy(cluster="demo", min_workers=limits[0], max_workers=limits[1]), ELASTIC)
    views = {instance_id(number): seen(number, kind, rules) for number, kind in kinds.items()}
    old = Membership(revision=3, members=tuple(instance_id(number) for number in order[:members]))
    return old, views, rules, plan_target(old, views.values(), rules, over=False)


@given(CLUSTERS, LIMITS)
def test_law_nobody_who_trains_is_pushed_out_by_who_comes_later(cluster: tuple, limits: tuple[int, int]) -> None:
    old, views, _, plan = planned(cluster, limits)
    for left in (one for one in old.members if one not in plan.membership.members):
        node = views[left]
        if node.base or not (node.wanted and node.prepared):
            continue  # it wants to leave, or cannot stay
        before = set(old.members[: old.members.index(left)])
        others = [one for one in plan.membership.members if not views[one].base]
        assert set(others) <= before, "a place went to somebody who stands behind it"
        assert plan.reasons[left] is Reason.ABOVE_MAXIMUM


@given(CLUSTERS, LIMITS)
def test_law_the_places_up_to_the_maximum_are_filled_and_none_above_it(cluster: tuple, limits: tuple[int, int]) -> None:
    """Base nodes are never left out: the job's servers are theirs."""
    _, views, _, plan = planned(cluster, limits)
    ready = {name for name, node in views.items() if node.wanted and node.prepared}
    base = {name for name in ready if views[name].base}
    inside = set(plan.membership.members)
    held = inside - ready
    assert base <= inside
    assert len(plan.membership.members) == len(inside), "nobody is in it twice"
    room = max(limits[1] - len(base), 0)
    assert len(inside - base) == min(room, len(ready - base) + len(held))
    out = ready - inside
    assert {name for name, why in plan.reasons.items() if why is Reason.ABOVE_MAXIMUM} >= out


@given(CLUSTERS, LIMITS)
def test_law_members_stand_master_first_then_base_then_in_order_of_joining(
    cluster: tuple, limits: tuple[int, int]
) -> None:
    """Ranks follow from it: a member that keeps its place among those that stay keeps its rank's data."""
    old, views, _, plan = planned(cluster, limits)
    inside = [views[name] for name in plan.membership.members]
    assert [node.base for node in inside] == sorted((node.base for node in inside), reverse=True)
    masters = [node.master for node in inside if node.base]
    assert masters == sorted(masters, reverse=True)
    for kind in ({"base": True, "master": True}, {"base": True, "master": False}, {"base": False}):
        alike = [n for n in inside if all(getattr(n, key) == value for key, value in kind.items())]
        stayed = [node.instance for node in alike if node.instance in old.members]
        assert stayed == sorted(stayed, key=old.members.index)
        assert [node.instance for node in alike][: len(stayed)] == stayed, "newcomers stand behind"
        came = [node.preparation.at for node in alike if node.instance not in old.members and node.preparation]
        assert came == sorted(came)


@given(CLUSTERS, LIMITS)
def test_law_of_two_newcomers_the_one_prepared_first_gets_the_place(cluster: tuple, limits: tuple[int, int]) -> None:
    old, views, _, plan = planned(cluster, limits)
    new = [n for name, n in views.items() if name not in old.members and n.wanted and n.prepared and not n.base]
    inside = [n.preparation.at for n in new if n.instance in plan.membership.members and n.preparation]
    outside = [n.preparation.at for n in new if n.instance not in plan.membership.members and n.preparation]
    assert max(inside, default=0.0) <= min(outside, default=float("inf"))


@given(CLUSTERS, LIMITS)
def test_law_who_lost_its_tag_is_held_only_up_to_the_minimum_and_those_first_who_stand_longest(
    cluster: tuple, limits: tuple[int, int]
) -> None:
    old, views, _, plan = planned(cluster, limits)
    ready = sum(node.wanted and node.prepared for node in views.values())
    could = [
        name for name in old.members if not views[name].wanted and views[name].prepared and not views[name].terminated
    ]
    held = [name for name in plan.membership.members if not views[name].wanted]
    assert sorted(held) == sorted(could[: max(limits[0] - ready, 0)])
    assert all(plan.reasons[name] is Reason.HELD_BY_MINIMUM for name in held)


def test_who_is_held_keeps_its_place_before_those_who_joined_later() -> None:
    """Its rank with it: at the end of the list it would be the first to be left out at the maximum."""
    world, master, workers = running_cluster(3, min_workers=4, max_workers=4)
    world.hear(world.tag(workers[0], present=False))
    assert world.target().members == (master, *workers)
    other = world.launch(9)
    world.hear(world.tag(other), world.report(other))
    assert world.target().members == (master, workers[1], workers[2], other), "nobody is held once there are enough"


@given(CLUSTERS, LIMITS, st.dictionaries(st.integers(0, 9).map(instance_id), st.integers(1, 3)))
def test_law_a_revision_is_one_more_when_something_changed_and_each_who_was_dropped_is_noted_at_it(
    cluster: tuple, limits: tuple[int, int], leaving: dict[str, int]
) -> None:
    """By that note an instance is kept from being ended before the job has let it go."""
    first, views, rules, _ = planned(cluster, limits)
    old = first.model_copy(update={"leaving": {k: v for k, v in leaving.items() if k not in first.members}})
    new = plan_target(old, views.values(), rules, over=False).membership
    if new.members == old.members:
        assert new is old
        return
    assert new.revision == old.revision + 1
    dropped = set(old.members) - set(new.members)
    earlier = {k: v for k, v in old.leaving.items() if k in views and not views[k].terminated}
    wanted = {**earlier, **dict.fromkeys(dropped, new.revision)}
    assert new.leaving == {k: v for k, v in wanted.items() if k not in new.members}
