"""Decides on admission to the control channel, by the proofs in a peer's first message, the hello. Pure.

The coordinator opens each connection with a nonce. The hello answers with a hash, keyed by the token, of the nonce and
the names that the hello claims. So the token itself is never sent, and a recorded hello is useless on another
connection. Knowledge of the token proves that the sender belongs to the cluster. The signed instance identity document
proves from which instance the hello comes, if the job has keys to verify the document.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from dyntrain.controller.contract.instance_identity import Keys, Verification, judge
from dyntrain.training.protocol.messages import PROTOCOL, Hello


class HelloRefusal(Enum):
    """Reasons to refuse a hello, each with the text that is sent to the peer."""

    OTHER_PROTOCOL = (
        f"another version of the protocol: this coordinator speaks {PROTOCOL}; run the same version on all nodes"
    )
    UNPROVEN = "wrong token"
    OTHER_CLUSTER = "another cluster's node"
    NOT_ITSELF = "not proved to be the instance that it names"


@dataclass(frozen=True)
class HelloChecker:
    """Checks hellos. Without `keys` a hello need not prove from which instance it comes."""

    cluster: str  # name of the coordinator's cluster
    token: str  # secret that each sender must know
    keys: Keys = ()  # public keys that verify instance identity documents

    def find_refusal(self, hello: Hello, nonce: str) -> tuple[HelloRefusal, str] | None:
        """Return the reason to refuse a hello that answers `nonce`, with a detail for the log.

        Return None if the hello is accepted.
        """
        if hello.protocol != PROTOCOL:
            return HelloRefusal.OTHER_PROTOCOL, f"it speaks {hello.protocol}"
        if not hmac.compare_digest(hello.proof.encode(), make_proof(self.token, nonce, hello).encode()):
            return HelloRefusal.UNPROVEN, ""
        if hello.cluster != self.cluster:
            return HelloRefusal.OTHER_CLUSTER, f"it is of {hello.cluster!r}"
        if (
            self.keys
            and (verdict := judge(hello.identity, hello.instance_id, hello.private_ip, self.keys))
            is not Verification.GENUINE
        ):
            return HelloRefusal.NOT_ITSELF, verdict.value
        return None


def make_proof(token: str, nonce: str, hello: Hello) -> str:
    """Return the HMAC-SHA256 (RFC 2104) by which a hello proves that its sender knows the token.

    The token is the key; the message contains nonce, sender's kind and claimed names, each with its length.
    """
    fields: list[str] = [nonce, type(hello).__name__, hello.cluster, hello.instance_id, hello.private_ip]
    message = b"".join(
        len(encoded_field).to_bytes(4) + encoded_field for encoded_field in (text.encode() for text in fields)
    )
    return hmac.new(token.encode(), message, hashlib.sha256).hexdigest()


H = TypeVar("H", bound=Hello)


def with_proof(hello: H, token: str, nonce: str) -> H:
    """Return a copy of `hello` that contains the proof that its sender knows the token."""
    return hello.model_copy(update={"proof": make_proof(token, nonce, hello)})
