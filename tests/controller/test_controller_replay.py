"""`dyntrain replay`: recorded events through the rules of app.py and the real decisions, in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from dyntrain.controller.cli.main import main
from dyntrain.controller.cli.rehearsal.recorded import Record
from dyntrain.controller.cli.rehearsal.rehearsal import differing_permutations
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.messages import ClusterPolicy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TAG = "demo-aws-dl-cfn-elastic-worker"
A, B = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
START = 1_800_000_000


def event(source: str, kind: str, detail: dict[str, Any], after: float = 0, instance: str = "") -> dict[str, Any]:
    arn = [f"arn:aws:ec2:eu-north-1:444455556666:instance/{instance}"] if instance else []
    time = datetime.fromtimestamp(START + after, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": f"e{after}",
        "source": source,
        "detail-type": kind,
        "time": time,
        "resources": arn,
        "detail": detail,
        "account": "444455556666",
    }


def tag(
    instance: str, version: float | str, present: bool = True, after: float = 0, key: str = TAG, **others: str
) -> dict[str, Any]:
    tags = {**others, **({key: ""} if present else {})}
    detail = {
        "changed-tag-keys": [key],
        "service": "ec2",
        "resource-type": "instance",
        "version": version,
        "tags": tags,
    }
    return event("aws.tag", "Tag Change on Resource", detail, after, instance)


def state(instance: str, word: str, after: float = 0) -> dict[str, Any]:
    return event(
        "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": instance, "state": word}, after, instance
    )


def prepared(instance: str, after: float = 0) -> dict[str, Any]:
    detail = {
        "cluster": "demo",
        "instance_id": instance,
        "private_ip": "10.1.1.1",
        "attempt": 1,
        "outcome": "prepared",
        "at": START + after,
    }
    return event("dyntrain.node", "Node Prepared", detail, after, instance)


def hook(instance: str, way: str, token: str, after: float = 0) -> dict[str, Any]:
    transition = "autoscaling:EC2_INSTANCE_LAUNCHING" if way == "launch" else "autoscaling:EC2_INSTANCE_TERMINATING"
    detail = {
        "LifecycleActionToken": token,
        "AutoScalingGroupName": "demo-workers",
        "LifecycleHookName": f"on-{way}",
        "EC2InstanceId": instance,
    }
    return event(
        "aws.autoscaling", f"EC2 Instance-{way} Lifecycle Action", {**detail, "LifecycleTransition": transition}, after
    )


def job(*members: str, revision: int = 1, after: float = 0) -> dict[str, Any]:
    listed = [
        {"instance_id": name, "rank": n, "active": True, "joined_epoch": 0, "joined_at": 1.0}
        for n, name in enumerate(members)
    ]
    detail = {
        "cluster": "demo",
        "job": "j",
        "state": "running",
        "started_at": float(START),
        "sequence": int(after),
        "generation": 1,
    }
    return event(
        "dyntrain.coordinator", "Generation Applied", {**detail, "revision": revision, "members": listed}, after
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["replay", *arguments])


def replay(
    folder: Path, *events: Any, options: tuple[str, ...] = (), code: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    for number, each in enumerate(events):
        (folder / f"{number:03}.json").write_text(each if isinstance(each, str) else json.dumps(each))
    result = run(str(folder), "--json", *options)
    assert result.exit_code == code, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return lines[:-1], lines[-1]


def test_each_event_is_told_with_its_handlers_and_outcome_and_the_end_with_nodes_target_and_actions(
    tmp_path: Path,
) -> None:
    events, end = replay(
        tmp_path,
        tag(A, 3),
        tag(A, 5, after=2),
        tag(A, 4, present=False, after=1),
        tag(A, 5, after=2),
        prepared(A, after=3),
    )
    assert [(line["matched"], line["outcome"]) for line in events] == [
        (["on_tag_change"], "applied"),
        (["on_tag_change"], "applied"),
        (["on_tag_change"], "stale"),
        (["on_tag_change"], "unchanged"),
        (["on_node_report"], "applied"),
    ]
    assert {line["instance"] for line in events} == {A}
    assert set(events[0]) == {"file", "matched", "outcome", "reason", "instance"}
    assert end["nodes"] == {A: {"status": "ADD_QUEUED", "reason": "NO_JOB"}}
    assert end["target"] == {"revision": 1, "members": [A]}
    assert [action["action"] for action in end["actions"]] == ["PublishTarget", "SetStatusTag"]


def test_what_is_no_json_or_no_event_is_an_outcome_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "image.bin").write_bytes(b"\xff\xfe\x00rubbish")
    (tmp_path / ".hidden").write_text("never looked at")
    odd = ("", "not json {", '"text"', "17", {"detail": {}}, "[" * 100_000, {"source": 1, "detail-type": "x"})
    events, end = replay(tmp_path, *odd, code=1)
    assert [line["outcome"] for line in events] == ["quarantined"] * 8
    assert all(line["reason"].startswith(("not JSON", "no event")) for line in events)
    assert end == {"nodes": {}, "target": {"revision": 0, "members": []}, "actions": []}


def test_json_lines_and_lists_hold_several_events_and_a_bad_line_spoils_only_itself(tmp_path: Path) -> None:
    lines = [json.dumps(tag(A, 1)), "{broken", "", json.dumps(tag(B, 1))]
    (tmp_path / "recorded.jsonl").write_text("\n".join(lines))
    (tmp_path / "list.json").write_text(json.dumps([prepared(A), prepared(B)]))
    events, end = replay(tmp_path)
    assert [line["outcome"] for line in events] == ["applied", "applied", "applied", "quarantined", "applied"]
    assert "line 2" in events[3]["reason"]
    assert end["target"]["members"] == [A, B]


def test_values_one_after_the_other_and_unicode_line_separators_are_read_as_jq_prints_them(tmp_path: Path) -> None:
    odd = {**tag(A, 1), "note": "a\u2028b\u0085c"}
    (tmp_path / "pretty.json").write_text(f"\n{json.dumps(tag(A, 1), indent=2)}\n{json.dumps(tag(B, 1), indent=2)}\n")
    (tmp_path / "lines.jsonl").write_text(f"{json.dumps(odd, ensure_ascii=False)}\n{{oops\n{json.dumps(tag(B, 2))}\r\n")
    lines = [json.loads(line) for line in run(str(tmp_path), "--json").output.splitlines()]
    assert [(Path(one["file"]).name, one["outcome"]) for one in lines[:-1]] == [
        ("lines.jsonl", "applied"),
        ("lines.jsonl", "quarantined"),
        ("lines.jsonl", "applied"),
        ("pretty.json", "unchanged"),
        ("pretty.json", "stale"),
    ]
    assert "line 2" in lines[1]["reason"]


@pytest.mark.parametrize("now", ["soon", "NaN", "1e400", "-5", "", "99999999999999999999"])
def test_a_now_that_is_no_time_is_refused(tmp_path: Path, now: str) -> None:
    (tmp_path / "one.json").write_text(json.dumps(tag(A, 1)))
    result = run(str(tmp_path), "--now", now)
    assert (result.exit_code, "is neither seconds since the epoch nor an ISO 8601 time" in result.output) == (2, True)


@pytest.mark.parametrize("time", [1e300, -1e18, "9999999-01-01", "soon", None])
def test_an_event_with_an_impossible_time_is_quarantined_and_is_not_now_for_the_others(
    tmp_path: Path, time: Any
) -> None:
    """One such event would put the clock beyond every lease and deadline."""
    (tmp_path / "both.json").write_text(json.dumps([{**state(B, "running"), "time": time}, tag(A, 1), prepared(A, 5)]))
    lines = [json.loads(line) for line in run(str(tmp_path), "--json").output.splitlines()]
    assert [one["outcome"] for one in lines[:-1]] == ["quarantined", "applied", "applied"]
    assert lines[-1]["target"]["members"] == [A]


def test_dead_letters_are_read_as_they_are_stored(tmp_path: Path) -> None:
    """What a rule gives up is the event itself, what a function gives up is wrapped by Lambda; both are messages."""
    destination = {
        "version": "1.0",
        "timestamp": "2023-11-14T22:30:00.000Z",
        "requestContext": {"requestId": "r", "functionArn": "arn:x:$LATEST", "condition": "RetriesExhausted"},
        "requestPayload": tag(A, 3),
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "responsePayload": {"errorMessage": "x"},
    }
    batch = {"requestContext": {"functionArn": "arn:x"}, "DDBStreamBatchInfo": {"shardId": "s", "batchSize": 3}}
    received = {"Messages": [{"MessageId": "m", "Body": json.dumps(destination)}, {"Body": json.dumps(prepared(A))}]}
    events, end = replay(tmp_path, destination, received, batch, {"Body": "no json"})
    assert [one["outcome"] for one in events] == ["applied", "unchanged", "applied", "quarantined", "quarantined"]
    assert "the next resync handles" in events[3]["reason"]
    assert end["nodes"][A]["status"] == "ADD_QUEUED"


def test_a_replay_that_could_read_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"no": "event"}')
    result = run(str(tmp_path))
    assert (result.exit_code, "the files contain no event" in result.stderr) == (1, True)


def test_an_event_that_no_rule_matches_reaches_nothing(tmp_path: Path) -> None:
    other = tag(A, 1, key="Name")
    broken = event("aws.tag", "Tag Change on Resource", {}, instance=A) | {"detail": ["odd"]}
    events, end = replay(
        tmp_path,
        other,
        event("aws.s3", "Object Created", {}),
        broken,
        {"source": "aws.ec2", "detail_type": "Capacity Block Odd"},
    )
    assert [(line["matched"], line["outcome"]) for line in events] == [([], "ignored")] * 4
    assert end["nodes"] == {}


def test_a_payload_that_matches_a_rule_and_cannot_be_right_is_quarantined_with_its_reason(tmp_path: Path) -> None:
    events, _ = replay(tmp_path, tag("i-nonsense", 1), state(A, "sleeping"), tag(A, "newest"))
    assert [line["outcome"] for line in events] == ["quarantined"] * 3
    assert ["i-nonsense" in events[0]["reason"], "state" in events[1]["reason"], "version" in events[2]["reason"]] == [
        True
    ] * 3


def test_a_group_launch_and_its_end_are_answered(tmp_path: Path) -> None:
    _, end = replay(
        tmp_path,
        hook(A, "launch", "t-1"),
        prepared(A, after=30),
        hook(B, "launch", "t-2"),
        hook(B, "terminate", "t-3", after=60),
    )
    assert {name: node["status"] for name, node in end["nodes"].items()} == {A: "ADD_QUEUED", B: "REMOVED"}
    answers = {
        (action["token"], action["result"]) for action in end["actions"] if action["action"] == "CompleteLifecycle"
    }
    assert answers == {("t-1", "CONTINUE"), ("t-3", "CONTINUE")}


def test_the_members_that_the_last_report_obeys_are_held_by_the_minimum(tmp_path: Path) -> None:
    events = [
        tag(A, 1),
        prepared(A),
        tag(B, 1),
        prepared(B),
        job(A, B, after=20),
        tag(A, 2, present=False, after=21),
        tag(B, 2, present=False, after=22),
    ]
    _, end = replay(tmp_path, *events)
    assert {name: (node["status"], node["reason"]) for name, node in end["nodes"].items()} == {
        A: ("ADDED", "HELD_BY_MINIMUM"),
        B: ("REMOVAL_QUEUED", "LEAVES_AT_BOUNDARY"),
    }


def test_a_launch_failure_shows_the_capacity_that_would_be_set(tmp_path: Path) -> None:
    detail = {"AutoScalingGroupName": "demo-workers", "EC2InstanceId": "", "StatusMessage": "no capacity"}
    _, end = replay(
        tmp_path, hook(A, "launch", "t"), event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", detail, after=5)
    )
    lowered = {"group": "demo-workers", "desired": 1, "why": "LOWERED", "detail": "no capacity"}
    assert {"action": "SetDesiredCapacity", **lowered} in end["actions"]


def test_now_decides_whether_a_notice_still_counts(tmp_path: Path) -> None:
    spot = event(
        "aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": A, "instance-action": "terminate"}, 5, A
    )
    for each, number in ((tag(A, 1), 0), (prepared(A), 1), (spot, 2)):
        (tmp_path / f"{number}.json").write_text(json.dumps(each))
    statuses = []
    for options in ((), ("--now", str(START + 86_400)), ("--now", "2027-06-01T00:00:00Z")):
        statuses.append(
            json.loads(run(str(tmp_path), "--json", *options).stdout.splitlines()[-1])["nodes"][A]["status"]
        )
    assert statuses == ["REMOVED", "ADD_QUEUED", "ADD_QUEUED"]


def test_a_cluster_config_is_used_and_a_wrong_one_is_refused_by_the_name_of_its_field(tmp_path: Path) -> None:
    config, folder = tmp_path / "policy.json", tmp_path / "events"
    folder.mkdir()
    config.write_text(json.dumps({"cluster": "demo", "groups": ["my-group"], "max_workers": 1}))
    _, end = replay(
        folder, tag(A, 1), prepared(A), tag(B, 1), prepared(B, after=1), options=("--cluster-config", str(config))
    )
    assert end["nodes"][B]["reason"] == "ABOVE_MAXIMUM"
    for wrong, message in (
        ('{"cluster": "demo", "max_wrokers": 3}', "max_wrokers"),
        ('{"min_workers": 3, "max_workers": 2, "cluster": "d"}', "max_workers"),
    ):
        config.write_text(wrong)
        result = run(str(folder), "--cluster-config", str(config))
        assert (result.exit_code, message in result.output) == (1, True)


def test_another_cluster_sees_nothing_of_these_nodes(tmp_path: Path) -> None:
    _, end = replay(tmp_path, tag(A, 1), prepared(A), options=("--cluster", "other"))
    assert end == {"nodes": {}, "target": {"revision": 0, "members": []}, "actions": []}


def test_a_path_that_cannot_be_read_is_exit_code_2(tmp_path: Path) -> None:
    for arguments in ([str(tmp_path / "missing")], [str(tmp_path), "--cluster-config", str(tmp_path / "nope")]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "cannot be read" in result.output


def test_without_json_people_read_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(tag(A, 1)))
    (tmp_path / "b.txt").write_text("remark")
    text = run(str(tmp_path)).output
    assert "on_tag_change  applied" in text
    assert f"{A}  WAITING  NO_BOOTSTRAP" in text
    assert "would do" not in text


def history() -> list[dict[str, Any]]:
    return [
        *(tag(A, 1), prepared(A, 2), tag(A, 2, present=False, after=3), tag(A, 3, after=4)),
        *(
            hook(B, "launch", "t-1", 5),
            prepared(B, 9),
            tag(B, 1, present=False, after=10),
            hook(B, "terminate", "t-2", 20),
        ),
        *(state(B, "shutting-down", 21), state(B, "terminated", 22), job(A, revision=3, after=25)),
    ]


def test_permutations_with_duplicates_end_alike(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("\n".join(json.dumps(each) for each in history()))
    result = run(str(tmp_path / "all.jsonl"), "--shuffle", "7", "--times", "25", "--json")
    assert result.exit_code == 0, result.output
    end = json.loads(result.stdout.splitlines()[-1])
    assert {name: node["status"] for name, node in end["nodes"].items()} == {A: "ADDED", B: "GONE"}


def test_a_permutation_that_ends_differently_is_found() -> None:
    order: list[str] = []

    def fickle(event: Any) -> list[str]:  # a rule that misses what comes first
        order.append(event["id"])
        return ["on_tag_change"] if len(order) % 2 == 0 else []

    records = [Record("x", tag(A, 1)), Record("x", tag(B, 1))]
    policy = ClusterPolicy(cluster="demo")
    assert differing_permutations(records, fickle, policy, ELASTIC_TAG, START + 9.0, seed=1, times=30)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_history_of_two_nodes_ends_the_same_in_any_order(data: st.DataObject) -> None:
    nodes, after = st.sampled_from([A, B]), st.integers(0, 100)
    kinds = [
        st.builds(lambda i, v, p: tag(i, v, p, after=v), nodes, st.integers(1, 6), st.booleans()),
        st.builds(prepared, nodes, after),
        st.builds(
            lambda i, w, t: hook(i, w, f"{w}-{i}-{t}", t), nodes, st.sampled_from(["launch", "terminate"]), after
        ),
        st.builds(state, nodes, st.sampled_from(["pending", "running", "stopping", "terminated"]), after),
        st.builds(lambda n, t: job(*n, after=t), st.lists(nodes, unique=True), after),
    ]
    records = [Record("x", each) for each in data.draw(st.lists(st.one_of(kinds), max_size=12))]
    everything = lambda event: ["handler"]  # noqa: E731
    assert (
        differing_permutations(
            records,
            everything,
            ClusterPolicy(cluster="demo", groups=("demo-workers",)),
            ELASTIC_TAG,
            START + 101.0,
            3,
            4,
        )
        == []
    )
