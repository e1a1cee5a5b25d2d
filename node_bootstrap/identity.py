"""Who this node is: its instance, address and region, and the cluster its tags name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.contract import BASE_TAG, ELASTIC_TAG_SUFFIX, NODE_TYPE_TAG, OWNER_TAG, SignedDocument
from node_bootstrap.errors import GiveUp, Unassigned
from node_bootstrap.metadata import MetadataClient


@dataclass(frozen=True)
class Identity:
    """`signed` proves the rest to others; None where the metadata service has no such document."""

    instance_id: str
    private_ip: str
    region: str
    cluster: str
    base: bool
    master: bool
    tags: Mapping[str, str]
    signed: SignedDocument | None = None


def cluster_of(tags: Mapping[str, str], suffix: str = ELASTIC_TAG_SUFFIX) -> str:
    """The ownership tag names the cluster, else the one elastic tag. Raises Unassigned for none, GiveUp for several."""
    if owner := tags.get(OWNER_TAG):
        return owner
    named = sorted(key.removesuffix(suffix) for key in tags if key.endswith(suffix) and key != suffix)
    if not named:
        raise Unassigned(
            f"the instance has neither the tag {OWNER_TAG} nor one ending in {suffix}, or its tags are not in the metadata: "
            "tag it, and set InstanceMetadataTags=enabled in its metadata options"
        )
    if len(named) > 1:
        raise GiveUp(f"the instance carries the elastic tags of several clusters ({', '.join(named)}); leave one, or set {OWNER_TAG}")
    return named[0]


def is_base(tags: Mapping[str, str]) -> bool:
    return tags.get(BASE_TAG, "false").strip().lower() not in ("false", "no", "0")


def is_master(tags: Mapping[str, str]) -> bool:
    """NodeType=Master alone is not enough: anybody may tag an instance so, and there must be one coordinator."""
    return is_base(tags) and tags.get(NODE_TYPE_TAG) == "Master"


async def read_tags(metadata: MetadataClient) -> dict[str, str]:
    listing = await metadata.read("meta-data/tags/instance/") or ""
    tags: dict[str, str] = {}
    for key in listing.splitlines():
        if key:
            value = await metadata.read(f"meta-data/tags/instance/{key}")
            if value is not None:  # removed since the listing
                tags[key] = value
    return tags


async def read_identity(metadata: MetadataClient) -> Identity:
    """Raises MetadataUnavailable, OnlyMetadataV1, Unassigned or GiveUp."""
    instance_id = await metadata.required("meta-data/instance-id")
    private_ip = await metadata.required("meta-data/local-ipv4")
    region = await metadata.required("meta-data/placement/region")
    tags = await read_tags(metadata)
    return Identity(
        instance_id=instance_id,
        private_ip=private_ip,
        region=region,
        cluster=cluster_of(tags),
        base=is_base(tags),
        master=is_master(tags),
        tags=tags,
        signed=await read_signed_document(metadata),
    )


async def read_signed_document(metadata: MetadataClient) -> SignedDocument | None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html"""
    document, signature = [await metadata.read(f"dynamic/instance-identity/{part}") for part in ("document", "signature")]
    return SignedDocument(document=document, signature=signature) if document and signature else None
