"""EC2 takes a batch as a whole or not at all, and the controller gets round the one that spoils it."""

from __future__ import annotations

import contextlib

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.ec2 import Ec2Instances
from local_toycloud import ToyCloud
from waiting import wait_for

GHOST = "i-0123456789abcdef0"


def test_a_tag_that_metadata_cannot_show_is_refused_as_ec2_does(toy: ToyCloud) -> None:
    """Whoever tries a cost tag in the playground learns what AWS says of it."""
    ec2, shown = toy.cloud.client("ec2"), toy.run_instance()
    wait_for(lambda: toy.cloud.instance_state(shown) == "running")
    for key, state in (("Cost Center", "enabled"), ("team/owner", "enabled"), ("Cost Center", "disabled")):
        ec2.modify_instance_metadata_options(InstanceId=shown, InstanceMetadataTags=state)
        with (
            pytest.raises(ClientError, match="not a valid tag key") if state == "enabled" else contextlib.nullcontext()
        ):
            ec2.create_tags(Resources=[shown], Tags=[{"Key": "Team", "Value": "ml"}, {"Key": key, "Value": "v"}])
    assert toy.cloud.account.instance_tags(shown).keys() == {"Team", "Cost Center"}


def test_one_bad_instance_refuses_a_whole_batch_and_the_others_are_done_all_the_same(
    toy: ToyCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    ec2, cloud = toy.cloud.client("ec2"), toy.cloud
    first, guarded, last = ids = [toy.run_instance() for _ in range(3)]
    wait_for(lambda: {cloud.instance_state(one) for one in ids} == {"running"})
    ec2.modify_instance_attribute(InstanceId=guarded, DisableApiTermination={"Value": True})
    with pytest.raises(ClientError, match="OperationNotPermitted"):
        ec2.terminate_instances(InstanceIds=ids)
    with pytest.raises(ClientError, match="NotFound"):
        ec2.create_tags(Resources=[*ids, GHOST], Tags=[{"Key": "k", "Value": "v"}])
    assert {cloud.instance_state(one) for one in ids} == {"running"}
    assert [cloud.account.instance_tags(one) for one in ids] == [{}] * 3
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    instances = Ec2Instances(Clients())
    assert instances.tag([*ids, GHOST], "k", "v").missing == {GHOST}
    assert [cloud.account.instance_tags(one) for one in ids] == [{"k": "v"}] * 3
    assert set(instances.terminate(ids).refused) == {guarded}
    wait_for(lambda: [cloud.instance_state(one) for one in (first, last)] == ["terminated"] * 2)
    assert cloud.instance_state(guarded) == "running"
