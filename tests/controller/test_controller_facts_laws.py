"""The laws that make order and duplicates of events harmless."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import reduce

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.capacity import needs_size, plan_capacity
from dyntrain.controller.core.incoming.events import Observation, SeveralNodes, observe
from dyntrain.controller.core.planning import decide
from dyntrain.controller.core.records.acks import (
    NO_ACKS,
    Acks,
    Announcement,
    Doubt,
    Effect,
    LifecycleResult,
    MissedReads,
    Termination,
)
from dyntrain.controller.core.records.facts import (
    BaseTag,
    ClusterStatement,
    GroupEvent,
    GroupRead,
    Hook,
    Machine,
    NodeFacts,
    Notice,
    Preparation,
    SignOfLife,
    StateEvent,
    StateRead,
    TagsEvent,
    TagsRead,
    join_all,
)
from dyntrain.controller.core.records.groups import Capacity, GroupFacts, GroupSize, Hold, LaunchFailure
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules
from fakes import ELASTIC, START, World, instance_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NODE = instance_id(1)
TIMES = st.integers(0, 5).map(float)
TAGS = st.dictionaries(
    st.sampled_from([ELASTIC.of("demo"), "dyntrain:cluster", "dyntrain:base"]),
    st.sampled_from(["", "demo"]),
    max_size=3,
)
STATES = st.sampled_from(["pending", "running", "stopping", "stopped", "shutting-down", "terminated"])
PHASES = st.sampled_from(["warm", "launching", "in_service", "terminating", "left"])


def maybe(strategy):
    return st.none() | strategy


def keyed(strategy):
    return st.dictionaries(st.sampled_from(["a", "b"]), strategy, max_size=2)


DONE = st.builds(Effect, at=TIMES)
ANNOUNCED = st.builds(Announcement, at=TIMES, value=st.sampled_from(["ADDED", "REMOVED"]))
ACKS = st.lists(
    st.one_of(
        *(st.builds(Acks, **{name: ANNOUNCED}) for name in ("status", "mirror", "refused", "billed")),
        *(st.builds(Acks, **{name: keyed(DONE)}) for name in ("joined", "stamps", "heartbeats", "protections")),
        *(st.builds(Acks, **{name: keyed(DONE)}) for name in ("suspended", "resumed")),
        st.builds(Acks, closed=st.builds(Announcement, at=TIMES, value=st.sampled_from(["IDLE", "JOB_OVER"]))),
        st.builds(
            Acks, terminate=st.builds(Termination, at=TIMES, group=st.sampled_from(["", "g"]), lowered=st.booleans())
        ),
        st.builds(Acks, unseen=st.builds(MissedReads, at=TIMES, times=st.integers(0, 3))),
        st.builds(Acks, doubt=st.builds(Doubt, at=TIMES, lost=st.booleans())),
        st.builds(
            Acks, answers=keyed(st.builds(LifecycleResult, at=TIMES, result=st.sampled_from(["CONTINUE", "ABANDON"])))
        ),
        st.builds(Acks, alarms=keyed(ANNOUNCED)),
    ),
    max_size=3,
).map(lambda several: reduce(Acks.join, several, NO_ACKS))
LAW = settings(suppress_health_check=[HealthCheck.too_slow])  # how fast the machine is is no matter of the laws
FACTS = st.builds(
    NodeFacts,
    instance=st.just(NODE),
    named=maybe(st.builds(ClusterStatement, at=TIMES, cluster=st.sampled_from(["demo", "other"]))),
    template=maybe(st.builds(ClusterStatement, at=TIMES, cluster=st.sampled_from(["demo", "other"]))),
    wished=maybe(st.builds(ClusterStatement, at=TIMES, cluster=st.sampled_from(["demo", "other"]))),
    based=maybe(st.builds(BaseTag, at=TIMES, value=st.sampled_from(["true", NODE]))),
    tags_event=maybe(st.builds(TagsEvent, version=TIMES, at=TIMES, tags=TAGS)),
    tags_read=maybe(st.builds(TagsRead, started=TIMES, tags=TAGS)),
    state_event=maybe(st.builds(StateEvent, at=TIMES, state=STATES)),
    state_read=maybe(st.builds(StateRead, started=TIMES, state=STATES, launched_at=maybe(TIMES))),
    machine=maybe(
        st.builds(
            Machine, started=TIMES, type=st.sampled_from(["c5", "m5"]), market=st.sampled_from(["spot", "reserved"])
        )
    ),
    terminated=st.booleans(),
    started_at=TIMES,
    group_event=maybe(st.builds(GroupEvent, at=TIMES, group=st.sampled_from(["g", "h"]), phase=PHASES)),
    group_read=maybe(
        st.builds(
            GroupRead, started=TIMES, group=maybe(st.just("g")), phase=maybe(PHASES), protected=maybe(st.booleans())
        )
    ),
    hooks=st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.builds(
            Hook,
            at=TIMES,
            group=st.just("g"),
            hook=st.just("h"),
            transition=st.sampled_from(["launch", "terminate"]),
            token=maybe(st.just("a")),
        ),
        max_size=2,
    ),
    preparation=maybe(
        st.builds(
            Preparation,
            attempt=st.integers(1, 3),
            at=TIMES,
            outcome=st.sampled_from(["prepared", "prepare_failed", "worker_failed"]),
        )
    ),
    heard=maybe(
        st.builds(SignOfLife, at=TIMES, doing=st.sampled_from(["", "waits"]), script=st.sampled_from(["", "a"]))
    ),
    notices=st.lists(
        st.builds(
            Notice,
            kind=st.sampled_from(["spot", "health"]),
            deadline=TIMES,
            ref=st.sampled_from(["", "arn"]),
            said_at=TIMES,
            closed=st.booleans(),
        ),
        max_size=3,
    ).map(lambda notices: tuple(sorted(set(notices), key=lambda notice: notice.sort_key))),
    acks=ACKS,
)


@LAW
@given(FACTS, FACTS)
def test_join_commutes_so_the_order_of_two_events_cannot_matter(a: NodeFacts, b: NodeFacts) -> None:
    assert a.join(b) == b.join(a)


@LAW
@given(FACTS, FACTS, FACTS)
def test_join_associates_so_it_does_not_matter_which_were_merged_first(
    a: NodeFacts, b: NodeFacts, c: NodeFacts
) -> None:
    assert a.join(b).join(c) == a.join(b.join(c))


@LAW
@given(FACTS, FACTS)
def test_join_is_idempotent_so_duplicates_cannot_matter(a: NodeFacts, b: NodeFacts) -> None:
    merged = a.join(b)
    assert a.join(a) == a
    assert merged.join(b) == merged


@LAW
@given(FACTS)
def test_empty_facts_are_the_identity_of_the_join(a: NodeFacts) -> None:
    assert NodeFacts(instance=NODE).join(a) == a


@LAW
@given(FACTS)
def test_facts_survive_the_table_unchanged(a: NodeFacts) -> None:
    assert NodeFacts.model_validate_json(a.model_dump_json(exclude_defaults=True)) == a


def test_nodes_that_nothing_was_done_to_share_one_empty_record_or_a_large_resync_would_copy_it_for_each() -> None:
    new, read = NodeFacts(instance="i-1"), NodeFacts.model_validate_json('{"instance": "i-2"}')
    assert new.acks is read.acks is NO_ACKS
    assert new.model_dump(exclude_defaults=True) == {"instance": "i-1"}, "nor is it written into the table"


def test_facts_of_two_instances_do_not_merge_into_one_node() -> None:
    with pytest.raises(ValueError, match="cannot be merged"):
        NodeFacts(instance=instance_id(1)).join(NodeFacts(instance=instance_id(2)))
    assert NodeFacts(instance=instance_id(1)) != NodeFacts(instance=instance_id(2))


def _job(sequence: int, started: float, heard: float) -> JobFacts:
    world = World()
    detail = world.job_event(NODE, revision=1, sequence=sequence, started_at=started)
    facts = observe(detail, ELASTIC)
    assert isinstance(facts, JobFacts)
    return facts.model_copy(update={"heard_at": heard})


@given(*[st.tuples(st.integers(0, 2), TIMES, TIMES)] * 3)
@settings(max_examples=50)
def test_job_reports_join_by_start_and_sequence_in_any_order(a: tuple, b: tuple, c: tuple) -> None:
    x, y, z = _job(*a), _job(*b), _job(*c)
    assert x.join(y) == y.join(x)
    assert x.join(y).join(z) == x.join(y.join(z))
    assert x.join(x) == x


def _of_node(observed: Observation) -> NodeFacts:
    news = observed.nodes[0] if isinstance(observed, SeveralNodes) else observed
    assert isinstance(news, NodeFacts)
    return news


def _maintenance(world: World, starts: float, **fields: str) -> dict:
    moment = format_datetime(datetime.fromtimestamp(starts, UTC), usegmt=True)
    detail = {
        "eventArn": "arn:one",
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": NODE}],
    }
    return world.event("aws.health", "AWS Health Event", {**detail, "startTime": moment, **fields}, at=starts - 6)


def _story(world: World) -> list[dict]:
    """Events of one node's life in which everything happens."""
    key = ELASTIC.of("demo")
    tags = {"dyntrain:cluster": "demo", key: ""}
    return [
        world.state_event(NODE, "pending", at=START + 1),
        world.hook_event(NODE, "launch", "t-1", at=START + 1),
        world.state_event(NODE, "running", at=START + 2),
        world.tag_event(NODE, 1, tags, [key], at=START + 3),
        world.report(NODE, "prepare_failed", attempt=1, at=START + 4, reason="no disk"),
        world.report(NODE, "prepared", attempt=2, at=START + 6),
        world.tag_event(NODE, 2, {"dyntrain:cluster": "demo"}, [key], at=START + 7),
        world.tag_event(NODE, 3.0, tags, [key], at=START + 8),
        world.event(
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            {"instance-id": NODE, "instance-action": "terminate"},
            at=START + 9,
        ),
        world.hook_event(NODE, "terminate", "t-2", at=START + 10),
        *(
            _maintenance(world, starts, **fields)
            for starts, fields in ((START + 15, {}), (START + 9000, {}), (START + 15, {"statusCode": "closed"}))
        ),
        world.state_event(NODE, "shutting-down", at=START + 11),
        world.state_event(NODE, "terminated", at=START + 12),
    ]


@given(st.data())
@settings(max_examples=150)
def test_c7_any_permutation_of_any_multiset_of_a_nodes_events_gives_the_same_facts_status_and_actions(
    data: st.DataObject,
) -> None:
    story = _story(World())
    chosen = data.draw(st.lists(st.sampled_from(range(len(story))), min_size=1, max_size=20))
    shuffled = data.draw(st.permutations(chosen))
    outcomes = []
    for order in (sorted(set(chosen)), shuffled):
        facts = join_all(NodeFacts(instance=NODE), [_of_node(observe(story[index], ELASTIC)) for index in order])
        rules = Rules(ClusterPolicy(cluster="demo", groups=("demo-workers",)), ELASTIC)
        decision = decide([facts], Membership(), None, rules, START + 20, published=0)
        outcomes.append((facts, [node.standing for node in decision.nodes], decision.actions, decision.membership))
    assert outcomes[0] == outcomes[1]


GROUPS = st.builds(
    GroupFacts,
    group=st.just("g"),
    named=maybe(st.builds(ClusterStatement, at=TIMES, cluster=st.sampled_from(["demo", ""]))),
    failed=maybe(st.builds(LaunchFailure, at=TIMES, message=st.sampled_from(["", "none left"]))),
    capacity=maybe(
        st.builds(
            Capacity,
            at=TIMES,
            failure=TIMES,
            wanted=st.integers(0, 3),
            desired=st.integers(0, 3),
            times=st.integers(1, 2),
            done=st.booleans(),
        )
    ),
    hold=maybe(
        st.builds(
            Hold,
            at=TIMES,
            held=st.booleans(),
            script=st.sampled_from(["", "a"]),
            times=st.integers(1, 2),
            reason=st.just("exit code 1"),
            done=st.booleans(),
        )
    ),
)


@given(GROUPS, GROUPS, GROUPS)
def test_facts_about_a_group_join_in_any_order_and_number(a: GroupFacts, b: GroupFacts, c: GroupFacts) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(b).join(b) == a.join(b)
    assert GroupFacts.model_validate_json(a.model_dump_json(exclude_defaults=True)) == a


@given(
    facts=GROUPS,
    limits=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    desired=st.integers(0, 10),
    running=st.integers(0, 12),
    now=st.integers(0, 20_000).map(float),
)
def test_a_capacity_that_is_set_anew_is_between_the_groups_limits_and_never_below_what_runs(
    facts: GroupFacts, limits: tuple[int, int], desired: int, running: int, now: float
) -> None:
    size = GroupSize(limits[0], limits[0] + limits[1], min(max(desired, limits[0]), limits[0] + limits[1]), running)
    plan = plan_capacity(facts, size, ClusterPolicy(cluster="demo"), now)
    if plan is not None and plan.why in ("LOWERED", "FILLED_BACK"):
        assert plan.desired is not None
        assert size.minimum <= plan.desired <= size.maximum
        assert plan.desired >= size.running or plan.why == "FILLED_BACK"
        assert not plan.memory.done
    assert plan is None or needs_size(facts, ClusterPolicy(cluster="demo"), now)
