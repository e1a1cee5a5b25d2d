"""The content of an instance's metadata service (identity, tags, credentials, notices) and the key that signs identity
documents.

Like AWS, the cloud signs with PKCS#1 v1.5 over SHA-256, in base64 lines of 76 characters, but with a key of its own.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from dyntrain.controller.local.events import timestamp
from dyntrain.controller.local.machines.imds import Tree, as_document

ROLE = "dyntrain-node"
CREDENTIAL_SECONDS = 6 * 3600.0


@dataclass(frozen=True)
class InstanceFacts:
    """Facts about an instance. `tags` is None when the instance's metadata options hide the tags. `notice` is (action,
    time) of a Spot interruption.
    """

    instance_id: str
    image_id: str
    instance_type: str
    address: str
    zone: str
    region: str
    account: str
    launched_at: float
    tags: dict[str, str] | None
    target_state: str | None = None
    notice: tuple[str, float] | None = None
    rebalance_at: float | None = None
    user_data: str = ""
    launch_index: int = 0


@dataclass(frozen=True)
class Signer:
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    @cached_property
    def public_key(self) -> str:
        """The public key as PEM, for a verifier."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    def sign(self, document: str) -> str:
        signature = self.key.sign(document.encode(), padding.PKCS1v15(), hashes.SHA256())
        text = base64.b64encode(signature).decode()
        return "\n".join(text[start : start + 76] for start in range(0, len(text), 76))


def document(facts: InstanceFacts) -> str:
    return as_document(
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


def credentials(facts: InstanceFacts, now: float) -> str:
    """Credentials in the format that boto3 expects of an instance role. The values are dummies, because moto checks no
    signatures.
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


def metadata(facts: InstanceFacts, signer: Signer, now: float) -> Tree:
    """The whole tree below the metadata service's root."""
    identity_document = document(facts)
    domain = "ec2.internal" if facts.region == "us-east-1" else f"{facts.region}.compute.internal"
    host = f"ip-{facts.address.replace('.', '-')}.{domain}"
    leaves: Tree = {
        "ami-id": facts.image_id,
        "ami-launch-index": facts.launch_index,
        "hostname": host,
        "iam": {"security-credentials": {ROLE: credentials(facts, now)}},
        "instance-id": facts.instance_id,
        "instance-type": facts.instance_type,
        "local-hostname": host,
        "local-ipv4": facts.address,
        "placement": {"availability-zone": facts.zone, "region": facts.region},
    }
    if facts.tags is not None:
        leaves["tags"] = {"instance": facts.tags}
    if facts.target_state is not None:
        leaves["autoscaling"] = {"target-lifecycle-state": facts.target_state}
    if facts.notice is not None:
        action, at = facts.notice
        leaves["spot"] = {"instance-action": json.dumps({"action": action, "time": timestamp(at)})}
        if action == "terminate":
            leaves["spot"]["termination-time"] = timestamp(at)
    if facts.rebalance_at is not None:
        leaves["events"] = {"recommendations": {"rebalance": json.dumps({"noticeTime": timestamp(facts.rebalance_at)})}}
    root: Tree = {
        "meta-data": leaves,
        "dynamic": {"instance-identity": {"document": identity_document, "signature": signer.sign(identity_document)}},
    }
    if facts.user_data:
        root["user-data"] = facts.user_data
    return {"latest": root}
