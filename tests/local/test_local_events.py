"""Events reach the handlers whose rules they match, and handlers run as in Lambda."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.disturbance import DisturbanceRates
from dyntrain.controller.local.errors import AppNotLoaded
from local_toycloud import QUIET, ToyCloud, toy_cloud
from waiting import wait_for

ELASTIC = {"Key": "demo-elastic-worker", "Value": ""}


def test_tag_changes_come_with_growing_versions_and_the_full_set(toy: ToyCloud) -> None:
    """Without it no tag would ever reach the controller."""
    ec2 = toy.cloud.client("ec2")
    instance_id = toy.run_instance()
    ec2.create_tags(Resources=[instance_id], Tags=[ELASTIC, {"Key": "Name", "Value": "one"}])
    ec2.create_tags(Resources=[instance_id], Tags=[ELASTIC])  # nothing changes: no event
    # another key only: the rule does not match
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "Name", "Value": "two"}])
    ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": "demo-elastic-worker"}])
    got = wait_for(lambda: len(toy.payloads("on_tag_change")) == 2 and toy.payloads("on_tag_change"))
    details = sorted((event["detail"] for event in got), key=lambda detail: detail["version"])
    assert [(detail["version"], detail["changed-tag-keys"], detail["tags"]) for detail in details] == [
        (1, ["Name", "demo-elastic-worker"], {"Name": "one", "demo-elastic-worker": ""}),
        (3, ["demo-elastic-worker"], {"Name": "two"}),
    ]
    assert all(event["resources"][0].endswith(f"instance/{instance_id}") for event in got)


def test_tags_given_at_launch_emit_nothing_unless_asked_for(toy: ToyCloud) -> None:
    """AWS does not promise these events; a controller that needs them would work here and fail there."""
    toy.run_instance(TagSpecifications=[{"ResourceType": "instance", "Tags": [ELASTIC]}])
    wait_for(lambda: len(toy.payloads("on_state")) == 2)
    assert toy.payloads("on_tag_change") == []


def test_an_instance_goes_through_its_states_with_an_event_for_each(toy: ToyCloud) -> None:
    ec2 = toy.cloud.client("ec2")
    instance_id = toy.run_instance()
    wait_for(lambda: toy.cloud.instance_state(instance_id) == "running")
    ec2.stop_instances(InstanceIds=[instance_id])
    wait_for(lambda: toy.cloud.instance_state(instance_id) == "stopped")
    ec2.start_instances(InstanceIds=[instance_id])
    wait_for(lambda: toy.cloud.instance_state(instance_id) == "running")
    ec2.terminate_instances(InstanceIds=[instance_id])
    wait_for(lambda: toy.cloud.instance_state(instance_id) == "terminated")
    ec2.terminate_instances(InstanceIds=[instance_id])  # again: nothing more
    states = [line["event"]["detail"]["state"] for line in toy.trace("event")]
    assert states == ["pending", "running", "stopping", "stopped", "pending", "running", "shutting-down", "terminated"]
    wait_for(lambda: len(toy.payloads("on_state")) == len(states))


def test_run_instances_answers_pending_and_the_address_that_describe_gives(toy: ToyCloud) -> None:
    ec2 = toy.cloud.client("ec2")
    answer = ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]
    described = ec2.describe_instances(InstanceIds=[answer["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert answer["State"]["Name"] == "pending"
    assert answer["PrivateIpAddress"] == described["PrivateIpAddress"]
    assert answer["PrivateIpAddress"].startswith("127.")


def test_describe_lags_behind_the_event(tmp_path: Path) -> None:
    """A controller that trusts a young read must be found out here."""
    with toy_cloud(tmp_path, replace(QUIET, describe_lag=1.0)) as cloud:
        instance_id = ToyCloud(cloud, tmp_path).run_instance()
        ec2 = cloud.client("ec2")

        def described() -> str:
            return str(
                ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["State"]["Name"]
            )

        wait_for(lambda: cloud.instance_state(instance_id) == "running")
        assert described() == "pending"
        wait_for(lambda: described() == "running")


def test_describe_calls_show_tags_as_they_were_a_while_ago_and_of_a_new_instance_a_part_or_nothing(
    toy: ToyCloud,
) -> None:
    """A controller that takes a missing tag for a wish, or an instance for lost, must be found out here."""
    ec2 = toy.cloud.client("ec2")
    toy.cloud.disturbance.set(DisturbanceRates(behind_seconds=3600.0))
    given = {ELASTIC["Key"]: "", "Name": "one"}
    specification = [{"Key": key, "Value": value} for key, value in given.items()]
    instance_id = toy.run_instance(TagSpecifications=[{"ResourceType": "instance", "Tags": specification}])

    def shown() -> dict[str, str] | None:
        filters = [{"Name": "instance-id", "Values": [instance_id]}]
        instances = [
            one for part in ec2.describe_instances(Filters=filters)["Reservations"] for one in part["Instances"]
        ]
        return {tag["Key"]: tag["Value"] for tag in instances[0].get("Tags", [])} if instances else None

    wait_for(lambda: shown() is None)
    wait_for(lambda: (shown() or given).items() < given.items())
    toy.cloud.disturbance.set(DisturbanceRates())
    assert shown() == given
    ec2.delete_tags(Resources=[instance_id], Tags=[ELASTIC])
    toy.cloud.disturbance.set(DisturbanceRates(behind_seconds=0.5))
    wait_for(lambda: shown() == {"Name": "one"})
    toy.cloud.disturbance.set(DisturbanceRates(behind_seconds=3600.0))
    wait_for(lambda: shown() != {"Name": "one"})
    assert toy.cloud.account.instance_tags(instance_id) == {"Name": "one"}


def test_what_a_describe_call_has_shown_is_not_taken_back_by_the_next_one(tmp_path: Path) -> None:
    """Else whoever watches would see a tag, or the size of a group, go back and forth, though each changes once."""
    with toy_cloud(tmp_path, replace(QUIET, behind=0.3)) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        ec2 = cloud.client("ec2")
        instance_id = toy.run_instance()
        shown: list[str] = []

        def look(last: str) -> bool:
            tags = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"]
            shown.extend(tag["Value"] for tag in tags)
            return shown[-1:] == [last]

        for number in range(8):
            ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "number", "Value": str(number)}])
            wait_for(lambda last=str(number): look(last), pause=0.0)
            for _ in range(10):
                look(str(number))
        assert shown == sorted(shown), "it is behind, and goes on in one direction"
        assert toy.cloud.account.instance_tags(instance_id)["number"] == shown[-1]


def test_put_events_reach_the_handler_with_the_id_that_was_answered(toy: ToyCloud) -> None:
    event_id = toy.put(word="hello")
    event = wait_for(lambda: toy.payloads("on_toy"))[0]
    assert (event["id"], event["source"], event["detail-type"], event["detail"]) == (
        event_id,
        "toy",
        "Toy",
        {"word": "hello"},
    )
    assert (event["account"], event["region"], event["resources"]) == (toy.cloud.account.number, "us-east-1", ["toy-1"])
    assert toy.notes("on_toy")[0]["function"] == "on_toy"


def test_a_malformed_entry_is_refused_and_the_others_arrive(toy: ToyCloud) -> None:
    entries = [{"Source": "toy", "DetailType": "Toy", "Detail": detail} for detail in ("{broken", '{"fine": true}')]
    answer = toy.cloud.client("events").put_events(Entries=entries)
    assert (answer["FailedEntryCount"], answer["Entries"][0]["ErrorCode"]) == (1, "MalformedDetail")
    assert wait_for(lambda: toy.payloads("on_toy"))[0]["detail"] == {"fine": True}


def test_events_are_delivered_twice_when_told_to(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, replace(QUIET, duplicate_fraction=1.0, duplicate_delay=0.1)) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        event_id = toy.put(word="twice")
        wait_for(lambda: len(toy.payloads("on_toy")) == 2)
        assert [event["id"] for event in toy.payloads("on_toy")] == [event_id, event_id]


def test_a_failing_handler_is_tried_three_times_and_then_a_dead_letter(toy: ToyCloud) -> None:
    """Errors must not vanish: the letter has the event and the error, in the file and in the queue."""
    event_id = toy.put(fail="no good")
    path = toy.cloud.state_dir / "dead-letters.jsonl"
    letter = json.loads(wait_for(lambda: path.exists() and path.read_text()))
    assert len(toy.payloads("on_toy")) == 3
    assert letter["requestContext"]["approximateInvokeCount"] == 3
    assert (letter["requestPayload"]["id"], letter["responsePayload"]) == (
        event_id,
        {"errorType": "ValueError", "errorMessage": "no good"},
    )
    sqs = toy.cloud.client("sqs")
    (url,) = sqs.list_queues(QueueNamePrefix="dyntrain-local-DeadLetters")["QueueUrls"]
    messages = wait_for(lambda: sqs.receive_message(QueueUrl=url).get("Messages"))
    assert json.loads(messages[0]["Body"]) == letter


def test_a_handler_process_that_ends_is_replaced_and_the_event_handled(toy: ToyCloud) -> None:
    toy.put(exit="once")
    wait_for(lambda: len(toy.notes("on_toy")) == 2)
    outcomes = wait_for(
        lambda: len(toy.trace("invocation")) == 2 and [line["outcome"] for line in toy.trace("invocation")]
    )
    assert outcomes == ["died", "ok"]


def test_handler_processes_killed_from_outside_do_not_lose_an_event(toy: ToyCloud) -> None:
    toy.put(word="before")
    wait_for(lambda: toy.payloads("on_toy"))
    for pid in toy.cloud.handler_pids:
        os.kill(pid, signal.SIGKILL)
    toy.put(word="after")
    wait_for(lambda: {"word": "after"} in [event["detail"] for event in toy.payloads("on_toy")])
    assert not (toy.cloud.state_dir / "dead-letters.jsonl").exists()


def test_a_handler_that_hangs_is_killed_and_the_next_event_handled(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, replace(QUIET, handler_timeout=0.5, handler_processes=1, retry_delays=())) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        toy.put(sleep=60)
        wait_for(lambda: [line["outcome"] for line in toy.trace("invocation")] == ["timeout"])
        toy.put(word="next")
        wait_for(lambda: len(toy.payloads("on_toy")) == 2)
        assert next(line["outcome"] for line in toy.trace("invocation")) == "timeout"


def test_handlers_run_at_the_same_time_in_processes_of_their_own(toy: ToyCloud) -> None:
    for _ in range(3):
        toy.put(sleep=1.0)
    notes = wait_for(lambda: len(toy.notes("on_toy")) == 3 and toy.notes("on_toy"))
    assert len({note["pid"] for note in notes}) == 3
    assert os.getpid() not in {note["pid"] for note in notes}


def test_schedules_fire_at_the_scaled_pace(tmp_path: Path) -> None:
    with toy_cloud(tmp_path, resync_seconds=0.3) as cloud:
        toy = ToyCloud(cloud, tmp_path)
        fired = wait_for(lambda: len(toy.payloads("on_minute")) >= 2 and toy.payloads("on_minute"))
    assert (fired[0]["source"], fired[0]["detail-type"], fired[0]["detail"]) == ("aws.events", "Scheduled Event", {})
    assert fired[0]["id"] != fired[1]["id"]


def test_an_app_that_cannot_be_imported_is_one_clear_error() -> None:
    with pytest.raises(AppNotLoaded, match="No module named 'there_is_no_such_app'"):
        Cloud(app="there_is_no_such_app:app", app_directory=Path(__file__).parent / "toy").start()


def test_what_the_cloud_does_not_have_is_said_in_a_word_and_not_as_a_failure_of_aws(toy: ToyCloud) -> None:
    """As doctor's question of IAM's simulation: an InternalFailure is asked again, and sends people to a trace."""
    with pytest.raises(ClientError, match="the embedded cloud does not support iam:SimulatePrincipalPolicy"):
        toy.cloud.client("iam").simulate_principal_policy(
            PolicySourceArn="arn:aws:iam::123456789012:role/any", ActionNames=["ec2:RunInstances"]
        )
