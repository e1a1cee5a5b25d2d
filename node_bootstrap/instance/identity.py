"""Reads the identity of this node: its instance, address and region, and the cluster that its tags name."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG_SUFFIX, ElasticTag
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    NODE_TYPE_TAG,
    OWNER_TAG,
    SignedDocument,
    is_base_value,
)
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import GiveUp, NoClusterTag, NodeError
from dyntrain.node_bootstrap.instance.metadata import MetadataClient

# environment variable, set in /etc/dyntrain/node.env, for instances that no launch template tags with their cluster
SUFFIX_VARIABLE = "DYNTRAIN_ELASTIC_SUFFIX"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Identity of a node: its instance, address, region and cluster, and whether it is a base node."""

    instance_id: str
    private_ip: str
    region: str  # AWS region of the instance
    cluster: str  # name of the node's cluster
    base: bool  # whether this is a base node, which keeps ps-lite processes
    master: bool  # whether this is the base node that runs the first coordinator
    tags: Mapping[str, str]  # the instance's tags
    signed: SignedDocument | None = None  # AWS's document that proves the identity; None if there is none

    @property
    def launched_at(self) -> float | None:
        """Time of the instance's last start, or None if it is unknown.

        That AWS's signed document contains the start time was not tested, but is documented:
        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
        """
        try:
            return datetime.fromisoformat(json.loads(self.signed.document)["pendingTime"]).timestamp()  # type: ignore[union-attr]
        except (AttributeError, ValueError, KeyError, TypeError):
            return None


def cluster_of(tags: Mapping[str, str], elastic: ElasticTag) -> str:
    """Return the cluster's name from the ownership tag, or else from the elastic tag.

    Raises NoClusterTag if no tag names a cluster, and GiveUp if the instance has several elastic tags.
    """
    if owner_cluster := tags.get(OWNER_TAG):
        return owner_cluster
    clusters = sorted(cluster for tag_key in tags if elastic.has(tag_key) and (cluster := elastic.cluster(tag_key)))
    if not clusters:
        raise NoClusterTag(
            f"the instance has no tag {OWNER_TAG} nor one ending in {elastic.suffix}, or hides its tags: tag it, "
            f"set InstanceMetadataTags=enabled, or set {SUFFIX_VARIABLE} in /etc/dyntrain/node.env"
        )
    if len(clusters) > 1:
        raise GiveUp(
            f"the instance carries the elastic tags of several clusters ({', '.join(clusters)}); leave one, or set "
            f"{OWNER_TAG}"
        )
    return clusters[0]


def is_base(tags: Mapping[str, str]) -> bool:
    return is_base_value(tags.get(BASE_TAG))


def is_master(tags: Mapping[str, str]) -> bool:
    """Whether the instance is the master: a base node with the tag NodeType=Master (any instance may have this tag)."""
    return is_base(tags) and tags.get(NODE_TYPE_TAG) == "Master"


async def read_tags(metadata: MetadataClient) -> dict[str, str]:
    tag_key_lines = await metadata.read("meta-data/tags/instance/") or ""
    tags: dict[str, str] = {}
    for tag_key in tag_key_lines.splitlines():
        if tag_key:
            tag_value = await metadata.read(f"meta-data/tags/instance/{tag_key}")
            if tag_value is not None:  # None: the tag was removed since the listing
                tags[tag_key] = tag_value
    return tags


async def read_identity(metadata: MetadataClient) -> Identity:
    """Read the identity of this node from the instance metadata service.

    Raises MetadataUnavailable, OnlyMetadataV1, NoClusterTag or GiveUp.
    """
    instance_id = await metadata.read_required("meta-data/instance-id")
    private_ip = await metadata.read_required("meta-data/local-ipv4")
    region = await metadata.read_required("meta-data/placement/region")
    tags = await read_tags(metadata)
    return Identity(
        instance_id=instance_id,
        private_ip=private_ip,
        region=region,
        cluster=cluster_of(tags, ElasticTag(os.environ.get(SUFFIX_VARIABLE) or ELASTIC_TAG_SUFFIX)),
        base=is_base(tags),
        master=is_master(tags),
        tags=tags,
        signed=await read_signed_document(metadata),
    )


async def read_signed_document(metadata: MetadataClient) -> SignedDocument | None:
    """Read AWS's signed document that proves the instance's identity; returns None if there is none.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
    """
    document, signature = [
        await metadata.read(f"dynamic/instance-identity/{file_name}") for file_name in ("document", "signature")
    ]
    return SignedDocument(document=document, signature=signature) if document and signature else None


async def wait_until_base(metadata: MetadataClient, timing: Timing) -> None:
    """Wait until the instance has the tag of base nodes, which is read every `Timing.notice_poll_seconds`.

    If the tag of base nodes is removed later, the node remains a base node until it retires.
    """
    while True:
        try:
            tag_value = await metadata.read(f"meta-data/tags/instance/{BASE_TAG}")
        except NodeError as error:
            log.warning("cannot read the base tag", extra={"reason": str(error)})
        else:
            if tag_value is not None and is_base({BASE_TAG: tag_value}):
                log.info("this node is a base node from now on", extra={"tag": tag_value})
                return
        await asyncio.sleep(timing.notice_poll_seconds)
