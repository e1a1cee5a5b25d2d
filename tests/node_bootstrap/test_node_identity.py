"""Who a node takes itself for, and what it does when the metadata service does not tell (N4)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.node_bootstrap.host.errors import GiveUp, MetadataUnavailable, NoClusterTag, OnlyMetadataV1
from dyntrain.node_bootstrap.instance.identity import cluster_of, is_base, is_master, read_identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from node_coordinator import dead_endpoint
from node_fakes import BASE_TAGS, INSTANCE, MASTER_TAGS, QUICK, metadata_service, metadata_values


def test_identity_of_an_elastic_node() -> None:
    with metadata_service(metadata_values("10.0.0.7")) as fake:
        identity = asyncio.run(read_identity(MetadataClient(fake.url, QUICK)))
    assert (identity.instance_id, identity.private_ip, identity.region, identity.cluster) == (
        INSTANCE,
        "10.0.0.7",
        "eu-west-1",
        "demo",
    )
    assert (identity.base, identity.master) == (False, False)
    assert identity.signed is not None
    assert json.loads(identity.signed.document)["instanceId"] == INSTANCE


def test_identity_of_the_master() -> None:
    with metadata_service(metadata_values(**MASTER_TAGS)) as fake:
        identity = asyncio.run(read_identity(MetadataClient(fake.url, QUICK)))
    assert (identity.cluster, identity.base, identity.master) == ("demo", True, True)


@pytest.mark.parametrize(
    ("tags", "cluster"),
    [
        ({"dyntrain:cluster": "a", "b-aws-dl-cfn-elastic-worker": ""}, "a"),
        ({"b-aws-dl-cfn-elastic-worker": "", "Name": "x"}, "b"),
        ({"my-team-b-aws-dl-cfn-elastic-worker": "yes"}, "my-team-b"),
    ],
)
def test_cluster_is_named_by_owner_else_by_elastic_tag(tags: dict[str, str], cluster: str) -> None:
    """An instance that people tagged by hand joins as well; one that a cluster owns is not drawn into another."""
    assert cluster_of(tags, ELASTIC_TAG) == cluster


def test_cluster_of_an_untagged_node_is_asked_for_again() -> None:
    """The tag may be put on while the node boots; the message must say what to tag."""
    with pytest.raises(NoClusterTag, match="dyntrain:cluster") as caught:
        cluster_of({"Name": "x", "-aws-dl-cfn-elastic-worker": ""}, ELASTIC_TAG)
    assert "InstanceMetadataTags" in str(caught.value)


def test_cluster_of_a_node_with_two_elastic_tags_is_for_people_to_decide() -> None:
    with pytest.raises(GiveUp) as caught:
        cluster_of({"a-aws-dl-cfn-elastic-worker": "", "b-aws-dl-cfn-elastic-worker": ""}, ELASTIC_TAG)
    assert "a, b" in str(caught.value)


def test_master_must_be_a_base_node() -> None:
    """Anybody may put NodeType=Master on an elastic worker: a second coordinator would take the job over."""
    assert not is_master({"NodeType": "Master"})
    assert is_master(MASTER_TAGS)
    assert is_base(BASE_TAGS)
    assert not is_base({"dyntrain:base": "false"})


def test_n4_only_version_1_answers() -> None:
    """The error must name the cause: "not found" would send people looking for the wrong thing."""
    with metadata_service(metadata_values(), "v1") as fake, pytest.raises(OnlyMetadataV1) as caught:
        asyncio.run(read_identity(MetadataClient(fake.url, QUICK)))
    assert "HttpTokens=required" in str(caught.value)


def test_n4_silent_service_is_given_up_without_its_answer() -> None:
    """A node that hangs at boot shows up nowhere."""
    with metadata_service(metadata_values(), "silent") as fake:
        with pytest.raises(MetadataUnavailable) as caught:
            asyncio.run(read_identity(MetadataClient(fake.url, replace(QUICK, metadata_timeout_seconds=0.3))))
        assert fake.held == 3, "all of them still wait: none was let go by the service"
    assert "3 tries" in str(caught.value)


def test_n4_dead_service_is_given_up_in_time() -> None:
    url = dead_endpoint().url.replace("wss:", "http:")
    with pytest.raises(MetadataUnavailable) as caught:
        asyncio.run(read_identity(MetadataClient(url, QUICK)))
    assert url in str(caught.value)


def test_n4_passing_trouble_is_survived() -> None:
    """503 during boot is ordinary, and tokens expire in the middle of a life."""

    async def scenario(client: MetadataClient) -> str | None:
        fake.failures = 2
        await client.read("meta-data/instance-id")
        fake.expire()
        return await client.read("meta-data/instance-id")

    with metadata_service(metadata_values()) as fake:
        assert asyncio.run(scenario(MetadataClient(fake.url, QUICK))) == INSTANCE
        assert fake.refused == 1


def test_absence_is_no_failure() -> None:
    """404 is how the service says that there is no notice; retrying it would delay every poll."""
    with metadata_service(metadata_values()) as fake:
        assert asyncio.run(MetadataClient(fake.url, QUICK).read("meta-data/spot/instance-action")) is None
