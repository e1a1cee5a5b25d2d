"""The embedded cloud's pure parts: what it decides without a server."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local import events
from dyntrain.controller.local.calls import parse_call
from dyntrain.controller.local.cloud import hooks, scaling
from dyntrain.controller.local.cloud.tags import changed_keys
from dyntrain.controller.local.errors import AppNotLoaded, ResourcesInvalid
from dyntrain.controller.local.lambdas.packaged import packaged_template, with_stage_defaults
from dyntrain.controller.local.lambdas.rules import EventRules, PatternRule, period_of
from dyntrain.controller.local.lambdas.stream import item_key_of, shuffled_by_item
from dyntrain.controller.local.machines.addresses import Addresses, AddressesExhausted, loopback_addresses
from dyntrain.controller.local.machines.identity import InstanceFacts, Signer, metadata_tree
from dyntrain.controller.local.machines.imds import SessionTokens, find_value
from hypothesis import given
from hypothesis import strategies as st


def member(
    instance_id: str, state: str = "InService", *, protected: bool = False, order: int = 0
) -> scaling.MemberView:
    return scaling.MemberView(instance_id, state, protected, order)


def test_heartbeat_moves_the_deadline_but_never_beyond_the_cap() -> None:
    action = hooks.begin_action("t", "g", "h", events.LAUNCHING, "i-1", 30.0, "ABANDON", 1000.0)
    assert action.deadline == 1030.0
    assert action.with_heartbeat(1020.0).deadline == 1050.0
    assert action.with_heartbeat(1000.0 + 2990.0).deadline == 1000.0 + 100 * 30.0
    assert (
        hooks.begin_action("t", "g", "h", events.LAUNCHING, "i-1", 7200.0, "ABANDON", 0.0).latest_deadline
        == 48 * 3600.0
    )


def test_scale_in_takes_those_not_in_service_first_then_the_newest() -> None:
    members = [member("old", order=1), member("new", order=2), member("coming", "Pending:Wait", order=3)]
    assert scaling.surplus_instances(members, 2) == ["coming"]
    assert scaling.surplus_instances(members, 1) == ["coming", "new"]


def test_scale_in_never_takes_protected_instances_and_leaving_ones_do_not_count() -> None:
    members = [member("kept", protected=True), member("also", protected=True), member("leaving", "Terminating:Wait")]
    assert scaling.surplus_instances(members, 0) == []
    assert scaling.count_missing(members, 3) == 1


def test_failed_launches_are_repeated_ever_more_slowly_up_to_a_minute() -> None:
    assert [scaling.relaunch_delay_seconds(failures, 1.0) for failures in (0, 1, 2, 3, 30)] == [
        0.0,
        1.0,
        2.0,
        4.0,
        60.0,
    ]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers()), max_size=30), st.integers())
def test_a_shuffled_batch_keeps_each_items_order_and_every_record(changes: list[tuple[int, int]], seed: int) -> None:
    records = [
        {"number": number, "dynamodb": {"Keys": {"pk": {"S": str(item)}}}} for number, (item, _) in enumerate(changes)
    ]
    shuffled = shuffled_by_item(records, random.Random(seed))
    assert sorted(record["number"] for record in shuffled) == [record["number"] for record in records]
    for key in {item_key_of(record) for record in records}:
        numbers = [record["number"] for record in shuffled if item_key_of(record) == key]
        assert numbers == sorted(numbers)


def test_patterns_match_a_suffix_and_only_that() -> None:
    rules = EventRules(
        (PatternRule("on_tag", {"source": ["aws.tag"], "detail": {"changed-tag-keys": [{"suffix": "-worker"}]}}),),
        (),
        (),
    )
    origin = events.EventOrigin("123456789012", "us-east-1", 0.0, "id")
    assert rules.target_functions(events.tag_event(origin, "i-1", ["other", "demo-worker"], 1, {})) == ["on_tag"]
    assert rules.target_functions(events.tag_event(origin, "i-1", ["worker"], 1, {})) == []


def test_rates_are_understood_and_calendars_are_refused_clearly() -> None:
    assert (period_of("rate(1 minute)"), period_of("rate(5 minutes)"), period_of("rate(2 hours)")) == (
        60.0,
        300.0,
        7200.0,
    )
    with pytest.raises(AppNotLoaded, match="cron"):
        period_of("cron(0 12 * * ? *)")


def test_an_event_has_every_field_that_chalice_reads() -> None:
    event = events.state_change(events.EventOrigin("123456789012", "eu-west-1", 0.0, "id"), "i-1", "running")
    assert event["time"] == "1970-01-01T00:00:00Z"
    assert {"version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"} == set(event)
    assert event["resources"] == ["arn:aws:ec2:eu-west-1:123456789012:instance/i-1"]


def test_changed_keys_are_those_that_came_went_or_differ() -> None:
    assert changed_keys({"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": ""}) == ["a", "b", "d"]


def test_addresses_of_clouds_on_neighbouring_ports_differ_and_come_back_late() -> None:
    first, second = Addresses(loopback_addresses(5000)), Addresses(loopback_addresses(5001))
    one = first.take_address()
    assert one == "127.19.136.2"
    assert one != second.take_address()
    first.release_address(one)
    assert first.take_address() != one
    small = Addresses(loopback_addresses(5000, block_count=1))
    assert len({small.take_address() for _ in range(253)}) == 253
    with pytest.raises(AddressesExhausted):
        small.take_address()


def test_query_lists_come_in_order_of_their_numbers() -> None:
    body = b"Action=CreateTags&ResourceId.10=i-c&ResourceId.2=i-b&ResourceId.1=i-a&Tag.1.Key=k"
    scope = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host"
    call = parse_call(scope, "", "application/x-www-form-urlencoded; charset=utf-8", body)
    assert (call.service, call.action, call.region) == ("ec2", "CreateTags", "us-east-1")
    assert call.list_values("ResourceId") == ["i-a", "i-b", "i-c"]


def test_a_request_that_is_no_aws_call_is_passed_on_and_not_crashed_on() -> None:
    assert parse_call("", "", "", b"\xff\xfe").action == ""
    assert parse_call("Credential=x", "AmazonSSM.PutParameter", "application/x-amz-json-1.1", b"[1").document == {}


def test_metadata_tokens_end_with_their_time_to_live() -> None:
    now = [0.0]
    tokens = SessionTokens(lambda: now[0])
    token = tokens.issue_token(10)
    assert tokens.is_valid_token(token)
    now[0] = 10.0
    assert not tokens.is_valid_token(token)
    assert not tokens.is_valid_token(None)


def test_metadata_without_permission_or_notice_has_no_such_paths() -> None:
    facts = InstanceFacts(
        "i-1", "ami-1", "t3.micro", "127.1.2.3", "us-east-1a", "us-east-1", "123456789012", 0.0, tags=None
    )
    tree = metadata_tree(facts, Signer(), 0.0)
    assert find_value(tree, "/latest/meta-data/instance-id") == "i-1"
    assert find_value(tree, "/latest/meta-data/placement/") == "availability-zone\nregion"
    assert find_value(tree, "/latest/meta-data/tags/instance") is None
    assert find_value(tree, "/latest/meta-data/spot/instance-action") is None
    assert find_value(tree, "/latest/meta-data/instance-id/more") is None


def test_an_app_without_a_stack_to_merge_is_refused_with_the_files_name(tmp_path: Path) -> None:
    with pytest.raises(ResourcesInvalid, match=r"\.chalice/config\.json"):
        packaged_template("app:app", tmp_path)


@pytest.mark.parametrize(
    ("keys", "identities"), [("region", "region"), ("unverified", "unverified"), ("MIGf", "keys"), (None, "region")]
)
def test_the_stage_says_whose_signatures_its_functions_believe(keys: str | None, identities: str) -> None:
    """What status and doctor go by; keys themselves would be too long for people."""
    variables = {} if keys is None else {"DYNTRAIN_IDENTITY_KEYS": keys}
    template: dict[str, Any] = {"Resources": {"StageIdentity": {"Properties": {"Value": "region"}}}}
    result = with_stage_defaults(template, {"stages": {"dev": {"environment_variables": variables}}}, "dev")
    assert result["Resources"]["StageIdentity"]["Properties"]["Value"] == identities
