"""What a submit leaves behind, wherever it ends: nothing that bills and that nobody knows of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.cli.commands.job.jobs import JobState, poll_job, relaunch, stop
from dyntrain.controller.contract.errors import GiveUp, Misconfigured, Refused, RetryLater
from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, JOB_TAG, STOPPED, SUCCEEDED, Exit
from dyntrain.controller.jobs.record import LAUNCH_SECONDS
from dyntrain.controller.jobs.submission.code import requirements_of
from dyntrain.controller.jobs.submission.ports import NoCapacity, RootVolume
from dyntrain.controller.jobs.submission.request import check, environment_of
from dyntrain.controller.jobs.submission.submit import prepare, resubmit, submit
from job_world import BUCKET, PACKED, Dead, World, request


def test_all_nodes_come_of_one_call_and_are_told_of_their_job_and_its_master() -> None:
    world = World()
    machines = world.submit(request(nodes=3, spot=True, placement_group="close", profile="arn:aws:iam::1:x"))
    assert [machine.rank for machine in machines] == [0, 1, 2]
    ((fields, _),) = world.launches.values()
    assert (fields["MinCount"], fields["MaxCount"]) == (3, 3)
    assert fields["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert fields["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    assert fields["MetadataOptions"]["HttpTokens"] == "required"
    assert fields["InstanceMarketOptions"]["SpotOptions"]["InstanceInterruptionBehavior"] == "terminate"
    assert fields["Placement"] == {"GroupName": "close"}
    for machine in machines:
        assert world.tags[machine.instance] == {
            "NAME": f"mnist-{machine.rank}",
            "JOB_ID": "mnist",
            "NUM_NODES": "3",
            "MASTER_PORT": "7777",
            "MASTER_ADDR": "10.0.0.4",
            JOB_TAG: "mnist",
        }
    assert world.record().state == "RUNNING"


def test_nodes_have_room_beside_their_image_and_a_disk_of_ones_own_counts_more() -> None:
    """Ubuntu's 8 GiB are full of packages before the job begins; on less than its own size no image is launched."""

    def volumes(**changes: Any) -> Any:
        world = World()
        world.root = changes.pop("root", RootVolume("/dev/xvda", 75))
        world.submit(request(**changes))
        ((fields, _),) = world.launches.values()
        return fields.get("BlockDeviceMappings")

    volume = {"VolumeSize": 125, "VolumeType": "gp3", "DeleteOnTermination": True}
    assert volumes() == [{"DeviceName": "/dev/xvda", "Ebs": volume}]
    assert volumes(disk=300)[0]["Ebs"]["VolumeSize"] == 300
    assert volumes(root=None) is None
    with pytest.raises(GiveUp, match="at least 75"):
        volumes(disk=50)
    with pytest.raises(GiveUp, match="no root volume"):
        volumes(disk=50, root=None)


def test_settings_of_the_command_are_not_in_the_user_data_which_many_may_read() -> None:
    world = World()
    world.submit(request(env={"TOKEN": "hush-hush"}))
    ((fields, _),) = world.launches.values()
    assert "hush-hush" not in fields["UserData"]
    assert world.plan()["env"] == {"TOKEN": "hush-hush"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "a/b"}, "no job name"),
        ({"name": "x" * 60}, "no job name"),
        ({"bucket": "No_Bucket"}, "no name of an S3 bucket"),
        ({"command": ()}, "no command"),
        ({"retries": 2}, "needs --spot"),
        ({"max_hours": 0.0}, "--max-hours"),
        ({"env": {"NODE_RANK": "5"}}, "cannot set it"),
        ({"env": {"A-B": "5"}}, "no name of an environment variable"),
        ({"artifacts": "../elsewhere"}, "must lie in"),
        ({"requirements": "/etc/passwd"}, "must lie in"),
        ({"artifacts": "."}, "a folder of its own"),
        ({"artifacts": "./"}, "a folder of its own"),
    ],
)
def test_what_makes_no_sense_is_refused_before_aws_is_asked(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        check(request(**changes))


def test_env_without_a_value_is_refused() -> None:
    assert environment_of(["A=b=c", "D="]) == {"A": "b=c", "D": ""}
    with pytest.raises(Misconfigured, match="NAME=VALUE"):
        environment_of(["A"])


def test_a_missing_bucket_and_missing_rights_are_told_before_anything_is_made() -> None:
    world = World()
    with pytest.raises(Refused, match="no bucket"):
        world.submit(request(bucket="nobodys"))
    world.failing["check_launch"] = [Refused("UnauthorizedOperation", "you may not")]
    with pytest.raises(Refused, match="you may not"):
        world.submit()
    assert (world.table, world.objects, world.machines) == ({}, {}, {})


def test_a_name_in_use_is_refused_whether_its_job_runs_or_has_ended() -> None:
    world = World()
    world.submit()
    with pytest.raises(GiveUp, match="in use: its job is RUNNING"):
        world.submit()
    world.settles(Exit(SUCCEEDED, 1, 0, "all ended", world.now))
    world.end(0), world.end(1)
    world.resync()
    with pytest.raises(GiveUp, match="resubmit"):
        world.submit()
    assert len(world.launches) == 1


def test_without_room_for_all_there_are_none_and_the_name_is_free() -> None:
    world = World()
    world.failing["launch"] = [Refused("InsufficientInstanceCapacity", "not all 2 can be had")]
    with pytest.raises(Refused, match="not all 2"):
        world.submit()
    assert (world.table, world.machines) == ({}, {})
    assert not [key for _, key in world.objects if key.endswith(("code.tar.gz", "job.json"))]
    world.submit()
    assert world.living() == [0, 1]


def test_a_launch_whose_answer_was_lost_is_taken_up_by_the_same_command_which_launches_nothing_twice() -> None:
    world = World()
    world.after["launch"] = [RetryLater("the line is dead")]
    with pytest.raises(RetryLater, match="repeat the same command"):
        world.submit()
    assert world.record().state == "LAUNCHING"
    assert [machine.rank for machine in world.submit(fresh="ba9876543210")] == [0, 1]
    assert (len(world.launches), world.living(), world.record().state) == (1, [0, 1], "RUNNING")


def test_another_job_does_not_take_up_a_submit_that_was_broken_off() -> None:
    world = World()
    world.after["launch"] = [RetryLater("the line is dead")]
    with pytest.raises(RetryLater):
        world.submit()
    with pytest.raises(GiveUp, match="in use"):
        world.submit(request(command=("other",)))


@pytest.mark.parametrize("at", ["put_object", "launch", "tag"])
@pytest.mark.parametrize("behind", [False, True])
def test_what_a_killed_submit_left_running_is_ended_by_the_resync_and_nothing_earlier(at: str, behind: bool) -> None:
    world = World()
    (world.after if behind and at == "launch" else world.failing)[at] = [Dead()]
    with pytest.raises(Dead):
        world.submit()
    running = world.living()
    world.resync(LAUNCH_SECONDS - 10.0)
    assert world.living() == running
    world.resync(20.0)
    assert world.living() == []
    assert world.record().state == "FAILED"
    assert "submit did not finish" in world.record().reason


def test_machines_that_cannot_be_told_their_master_do_not_wait_for_it() -> None:
    world = World()
    world.failing["tag"] = [Refused("UnauthorizedOperation", "no tags for you")]
    with pytest.raises(Refused, match="no tags"):
        world.submit()
    assert (world.living(), world.table) == ([], {})


@pytest.mark.parametrize("refused", [False, True])
def test_machines_that_could_not_be_ended_at_once_keep_their_record_until_the_resync_ends_them(refused: bool) -> None:
    world = World()
    world.failing["tag"] = [Refused("UnauthorizedOperation", "no tags for you")]
    if refused:
        world.failing["terminate"] = [Refused("UnauthorizedOperation", "nor this")]
    else:
        world.unknown = {f"i-{0:017x}"}
    with pytest.raises(Refused, match="no tags"):
        world.submit()
    assert world.record().state == "LAUNCHING"
    world.unknown = set()
    world.resync(LAUNCH_SECONDS + 1.0)
    assert world.living() == []


def test_machines_that_ec2_does_not_show_everywhere_yet_are_tagged_when_it_does() -> None:
    world = World()
    world.failing["tag"] = [RetryLater("EC2 does not show them yet")] * 8
    world.submit()
    assert world.record().state == "RUNNING"
    assert {tags["MASTER_ADDR"] for tags in world.tags.values()} == {"10.0.0.4"}


def test_a_submit_that_takes_up_another_and_is_refused_leaves_the_record_of_what_runs() -> None:
    """As after an upgrade: the user data is another one, which EC2 refuses under the same client token."""
    world = World()
    world.after["launch"] = [RetryLater("the line is dead")]
    with pytest.raises(RetryLater):
        world.submit()
    world.failing["launch"] = [Refused("IdempotentParameterMismatch", "other parameters")]
    with pytest.raises(Refused):
        world.submit()
    assert world.record().state == "LAUNCHING"
    world.resync(LAUNCH_SECONDS + 1.0)
    assert world.living() == []


def test_a_submit_that_takes_up_another_launches_from_the_image_that_was_looked_up_then() -> None:
    world = World()
    world.after["launch"] = [RetryLater("the line is dead")]
    with pytest.raises(RetryLater):
        world.submit(request(image=""))
    assert [machine.rank for machine in world.submit(request(image=""))] == [0, 1]


@pytest.mark.parametrize("refused", [False, True])
def test_of_two_equal_submits_one_goes_on_and_the_other_leaves_it_alone(refused: bool) -> None:
    world = World()
    one = prepare(world.ports, world, request(), PACKED, "0123456789ab")
    done = []

    def meanwhile(text: str) -> None:
        if not done:
            done.append(text)
            if refused:
                world.failing["launch"] = [Refused("InstanceLimitExceeded", "no more")]
                with pytest.raises(Refused):
                    world.submit()
            else:
                world.submit()

    with pytest.raises(GiveUp, match="claimed by another"):
        submit(world.ports, world, one, meanwhile)
    assert len(world.launches) == (0 if refused else 1)
    assert world.record().state == ("LAUNCHING" if refused else "RUNNING")
    assert (BUCKET, "mnist/job.json") in world.objects


def test_an_upload_that_took_so_long_that_the_job_was_given_up_launches_nothing() -> None:
    world = World()
    prepared = prepare(world.ports, world, request(), PACKED, "0123456789ab")
    with pytest.raises(GiveUp, match="given up"):
        submit(world.ports, world, prepared, lambda text: world.resync(LAUNCH_SECONDS + 1.0) and None)
    assert (world.launches, world.record().state) == ({}, "FAILED")


def test_a_slow_upload_does_not_take_the_launchs_time() -> None:
    world = World()
    prepared = prepare(world.ports, world, request(), PACKED, "0123456789ab")
    world.after["launch"] = [RetryLater("the line is dead")]
    with pytest.raises(RetryLater):
        submit(world.ports, world, prepared, lambda text: world.pause(LAUNCH_SECONDS - 30.0))
    world.resync(60.0)
    assert world.record().state == "LAUNCHING"


def test_a_submit_that_is_broken_off_by_hand_before_the_launch_leaves_the_name_free() -> None:
    world = World()
    world.failing["put_object"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.submit()
    assert world.table == {}
    world.after["launch"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        world.submit()
    assert world.record().state == "LAUNCHING", "what runs is known"


def test_a_resubmitted_job_has_a_launch_of_its_own_and_is_told_that_it_was_resumed() -> None:
    world = World()
    world.submit(request(env={"A": "b"}))
    assert world.plan()["resumed"] is False
    with pytest.raises(GiveUp, match="is RUNNING"):
        resubmit(world.ports, world, "mnist", lambda text: None)
    world.settles(Exit(STOPPED, 0, None, "stopped by hand", world.now))
    world.resync()
    with pytest.raises(RetryLater, match="still saving"):
        resubmit(world.ports, world, "mnist", lambda text: None)
    world.end(0), world.end(1)
    resubmit(world.ports, world, "mnist", lambda text: None)
    assert (world.plan()["resumed"], world.plan()["env"]) == (True, {"A": "b"})
    assert (len(world.launches), world.record().attempt, world.record().state) == (2, 2, "RUNNING")
    world.resync()
    assert world.record().state == "RUNNING", "the first attempt's exit.json is not this one's"


def interrupted() -> World:
    world = World()
    world.submit(request(spot=True, retries=3))
    world.settles(Exit(INTERRUPTED, 0, None, "taken back", world.now))
    world.end(0)
    world.end(1)
    world.resync()
    return world


@pytest.mark.parametrize(
    "trouble",
    [
        {"failing": [RetryLater("throttled")]},
        {"after": [RetryLater("the line is dead")]},
        {"failing": [NoCapacity("InsufficientInstanceCapacity", "not all 2 can be had")] * 3},
        {"failing": [RetryLater("throttled"), NoCapacity("InsufficientInstanceCapacity", "not all 2 can be had")]},
    ],
)
def test_a_relaunch_that_meets_a_throttle_or_no_room_goes_on_later_and_launches_once(
    trouble: dict[str, list[Exception]],
) -> None:
    world = interrupted()
    for place, errors in trouble.items():
        getattr(world, place)["launch"] = list(errors)
    lines: list[str] = []
    relaunch(world.ports, world, "mnist", lines.append)
    assert (world.record().state, world.record().attempt, len(world.launches)) == ("RUNNING", 2, 2)
    assert world.living() == [0, 1]
    assert lines[0].startswith("waiting: ")


def test_a_relaunch_without_room_ends_with_a_sentence_and_the_job_is_as_it_was() -> None:
    world = interrupted()
    world.failing["launch"] = [NoCapacity("InsufficientInstanceCapacity", "not all 2 can be had")] * 1000
    with pytest.raises(GiveUp, match=r"within 60 minutes.*resubmit"):
        relaunch(world.ports, world, "mnist", lambda text: None)
    assert (world.record().state, world.record().attempt) == ("INTERRUPTED", 1)


def test_an_interrupted_job_that_is_stopped_is_not_launched_again() -> None:
    world = interrupted()
    stop(world.ports, world, "mnist", at_once=False)
    relaunch(world.ports, world, "mnist", lambda text: None)
    assert (world.record().state, len(world.launches)) == ("STOPPED", 1)


def test_a_stop_that_comes_too_late_leaves_the_verdict_as_it_is() -> None:
    world = World()
    world.submit()
    failed = Exit(FAILED, 1, 3, "the command of rank 1 ended with exit code 3", world.now, "Traceback")
    world.settles(failed)
    assert "has ended already (FAILED)" in stop(world.ports, world, "mnist", at_once=False)
    assert (world.record().state, world.verdict(world.record())) == ("FAILED", failed)


def test_requirements_are_those_that_were_named_or_lie_there_and_none_that_is_missing(tmp_path: Path) -> None:
    """A job whose pip found no file would fail on machines that cost money."""
    folder = str(tmp_path)
    assert requirements_of(folder, None) == ""
    (tmp_path / "requirements.txt").touch()
    assert [requirements_of(folder, named) for named in (None, "")] == ["requirements.txt", ""]
    with pytest.raises(GiveUp, match=r"'more\.txt' is not in"):
        requirements_of(folder, "more.txt")
    assert requirements_of("s3://bucket/code.tar.gz", "more.txt") == "more.txt", "it lies in the archive"


def test_a_stopped_job_tells_its_nodes_and_with_now_ends_them() -> None:
    world = World()
    world.submit()
    assert "save their artifacts" in stop(world.ports, world, "mnist", at_once=False)
    ordered = world.verdict(world.record())
    assert ordered is not None
    assert (ordered.verdict, world.record().state, world.living()) == (STOPPED, "STOPPED", [0, 1])
    stop(world.ports, world, "mnist", at_once=True)
    assert world.living() == []


def test_machines_whose_image_does_not_run_user_data_are_told_of_and_a_node_that_is_late_is_not() -> None:
    world = World()
    world.submit()
    world.silent = 2
    lines: list[str] = []

    def say(seen: JobState) -> None:
        lines.append(f"{seen.phase} {seen.heard} {seen.reason}")
        if seen.late:
            world.silent = 1
        elif seen.heard:
            world.silent = 0

    def pause(seconds: float) -> None:
        world.pause(60.0)
        assert world.now - world.record().since < 7200.0, lines

    poll_job(world.ports, world, "mnist", say, ["RUNNING"], pause)
    assert lines[0] == "STARTING 0 "
    assert lines[1].startswith("STARTING 0 no node has reported in 30 minutes")
    assert lines[2:] == ["STARTING 1 ", "RUNNING 2 "]


@pytest.mark.parametrize("changes", [{"name": "other"}, {"profile": "admin"}, {"instance_type": "p5.48xlarge"}, None])
def test_a_request_that_was_changed_in_the_bucket_is_not_launched(changes: dict[str, str] | None) -> None:
    """The job's own machines may write there, and the submitter may launch more than they."""
    world = interrupted()
    key = (BUCKET, "mnist/job.json")
    if changes is None:
        del world.objects[key]
    else:
        world.objects[key] = json.dumps({**json.loads(world.objects[key]), **changes}, indent=1).encode()
    with pytest.raises(GiveUp, match="is not what was submitted"):
        resubmit(world.ports, world, "mnist", lambda text: None)
    assert len(world.launches) == 1
