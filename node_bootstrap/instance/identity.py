"""Identity of this node: its instance, address and region, and the cluster that its tags name."""

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
from dyntrain.node_bootstrap.host.errors import GiveUp, NodeError, Unassigned
from dyntrain.node_bootstrap.instance.metadata import MetadataClient

SUFFIX_VARIABLE = (
    "DYNTRAIN_ELASTIC_SUFFIX"  # for instances that no template tags with their cluster; in /etc/dyntrain/node.env
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Identity of a node. `signed` is the document that proves it; None if the metadata service has none."""

    instance_id: str
    private_ip: str
    region: str
    cluster: str
    base: bool
    master: bool
    tags: Mapping[str, str]
    signed: SignedDocument | None = None

    @property
    def launched_at(self) -> float | None:
        """Time of the instance's last start; None if unknown.

        Believed, from https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
        """
        try:
            return datetime.fromisoformat(json.loads(self.signed.document)["pendingTime"]).timestamp()  # type: ignore[union-attr]
        except (AttributeError, ValueError, KeyError, TypeError):
            return None


def cluster_of(tags: Mapping[str, str], elastic: ElasticTag) -> str:
    """Name of the cluster, from the ownership tag or else from the only elastic tag.

    Raises Unassigned without such a tag, GiveUp with several elastic tags.
    """
    if owner := tags.get(OWNER_TAG):
        return owner
    clusters = sorted(name for key in tags if elastic.has(key) and (name := elastic.cluster(key)))
    if not clusters:
        raise Unassigned(
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
    """Whether the instance is the master: a base node with the tag NodeType=Master, which alone anybody could set."""
    return is_base(tags) and tags.get(NODE_TYPE_TAG) == "Master"


async def read_tags(metadata: MetadataClient) -> dict[str, str]:
    listing = await metadata.read("meta-data/tags/instance/") or ""
    tags: dict[str, str] = {}
    for key in listing.splitlines():
        if key:
            value = await metadata.read(f"meta-data/tags/instance/{key}")
            if value is not None:  # None: the tag was removed since the listing
                tags[key] = value
    return tags


async def read_identity(metadata: MetadataClient) -> Identity:
    """Read the identity. Raises MetadataUnavailable, OnlyMetadataV1, Unassigned or GiveUp."""
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
    """Read the signed identity document, None if there is none.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html
    """
    document, signature = [
        await metadata.read(f"dynamic/instance-identity/{part}") for part in ("document", "signature")
    ]
    return SignedDocument(document=document, signature=signature) if document and signature else None


async def until_base(metadata: MetadataClient, timing: Timing) -> None:
    """Wait until the instance has the base tag, read every `Timing.notices` seconds.

    Later changes of the tag have no effect: the node remains a base node until it retires.
    """
    while True:
        try:
            value = await metadata.read(f"meta-data/tags/instance/{BASE_TAG}")
        except NodeError as error:
            log.warning("cannot read the base tag", extra={"reason": str(error)})
        else:
            if value is not None and is_base({BASE_TAG: value}):
                log.info("this node is a base node from now on", extra={"tag": value})
                return
        await asyncio.sleep(timing.notices)
