"""The content of an instance's metadata service (identity, tags, credentials, interruption notices), and the key that
signs identity documents.

As in AWS, the signature of an identity document is PKCS#1 v1.5 over SHA-256, in base64 lines of 76 characters. Unlike
AWS, the embedded cloud signs with a key of its own.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from dyntrain.controller.local.events import timestamp
from dyntrain.controller.local.machines.imds import MetadataTree, format_identity_document

INSTANCE_ROLE = "dyntrain-node"
CREDENTIAL_SECONDS = 6 * 3600.0  # lifetime of the credentials of an instance's role


@dataclass(frozen=True)
class InstanceFacts:
    """Facts about an instance that the instance's metadata service shows."""

    instance_id: str
    image_id: str
    instance_type: str
    address: str  # private IP address
    zone: str
    region: str
    account: str  # number of the AWS account
    launched_at: float  # seconds since the Unix epoch
    tags: dict[str, str] | None  # None if the instance's metadata options hide the tags
    target_state: str | None = None  # lifecycle state that the Auto Scaling group aims at
    notice: tuple[str, float] | None = None  # (action, time) of a Spot interruption
    rebalance_at: float | None = None  # time of EC2's rebalance recommendation
    user_data: str = ""
    launch_index: int = 0  # number of the instance in its launch call


@dataclass(frozen=True)
class Signer:
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    @cached_property
    def public_key(self) -> str:
        """The public key, as PEM text, with which clients verify the signatures."""
        key_format = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, key_format).decode()

    def sign(self, document: str) -> str:
        signature = self.key.sign(document.encode(), padding.PKCS1v15(), hashes.SHA256())
        signature_text = base64.b64encode(signature).decode()
        return "\n".join(
            signature_text[line_start : line_start + 76] for line_start in range(0, len(signature_text), 76)
        )


def identity_document(facts: InstanceFacts) -> str:
    return format_identity_document(
        {
            "accountId": facts.account,
            "architecture": "x86_64",
            "availabilityZone": facts.zone,
            "billingProducts": None,
            "imageId": facts.image_id,
            "instanceId": facts.instance_id,
            "instanceType": facts.instance_type,
            "kernelId": None,
            "pendingTime": timestamp(facts.launched_at),
            "privateIp": facts.address,
            "ramdiskId": None,
            "region": facts.region,
            "version": "2017-09-30",
        }
    )


def role_credentials(facts: InstanceFacts, now: float) -> str:
    """The credentials of the instance's role, in the format that boto3 expects. The values of the credentials are
    dummies, because moto checks no signatures.
    """
    return json.dumps(
        {
            "Code": "Success",
            "LastUpdated": timestamp(now),
            "Type": "AWS-HMAC",
            "AccessKeyId": f"ASIA{facts.instance_id[2:].upper():0<16.16}",
            "SecretAccessKey": "embedded-cloud",
            "Token": "embedded-cloud",
            "Expiration": timestamp(now + CREDENTIAL_SECONDS),
        }
    )


def metadata_tree(facts: InstanceFacts, signer: Signer, now: float) -> MetadataTree:
    """All values of the metadata service, as a tree of dicts below the root path."""
    document_text = identity_document(facts)
    domain_name = "ec2.internal" if facts.region == "us-east-1" else f"{facts.region}.compute.internal"
    host_name = f"ip-{facts.address.replace('.', '-')}.{domain_name}"
    metadata_entries: MetadataTree = {
        "ami-id": facts.image_id,
        "ami-launch-index": facts.launch_index,
        "hostname": host_name,
        "iam": {"security-credentials": {INSTANCE_ROLE: role_credentials(facts, now)}},
        "instance-id": facts.instance_id,
        "instance-type": facts.instance_type,
        "local-hostname": host_name,
        "local-ipv4": facts.address,
        "placement": {"availability-zone": facts.zone, "region": facts.region},
    }
    if facts.tags is not None:
        metadata_entries["tags"] = {"instance": facts.tags}
    if facts.target_state is not None:
        metadata_entries["autoscaling"] = {"target-lifecycle-state": facts.target_state}
    if facts.notice is not None:
        interruption_action, interrupted_at = facts.notice
        metadata_entries["spot"] = {
            "instance-action": json.dumps({"action": interruption_action, "time": timestamp(interrupted_at)})
        }
        if interruption_action == "terminate":
            metadata_entries["spot"]["termination-time"] = timestamp(interrupted_at)
    if facts.rebalance_at is not None:
        metadata_entries["events"] = {
            "recommendations": {"rebalance": json.dumps({"noticeTime": timestamp(facts.rebalance_at)})}
        }
    latest_tree: MetadataTree = {
        "meta-data": metadata_entries,
        "dynamic": {"instance-identity": {"document": document_text, "signature": signer.sign(document_text)}},
    }
    if facts.user_data:
        latest_tree["user-data"] = facts.user_data
    return {"latest": latest_tree}
