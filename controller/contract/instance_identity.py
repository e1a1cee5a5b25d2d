"""Verify that a message comes from the EC2 instance that the message names. The proof of the message's origin is an
instance identity document in the message, which EC2 has signed. Pure.

EC2 signs each instance's document with PKCS#1 v1.5 over SHA-256, and gives the document and the signature only to the
instance. For each region, AWS publishes a certificate with the public key
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-signature.html). A document is valid as long as its instance
lives. But anyone who can read an instance's metadata or messages can copy the document. A valid document does not prove
that the message itself is new.

This module verifies RSA signatures without a library (RFC 8017, section 8.2.2). The module computes the whole block of
bytes that a correct signature must yield, and compares this block with the block in the given signature. A cryptography
library would double the size and the start time of the Lambda package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass
from enum import Enum

from dyntrain.controller.contract.messages import SignedDocument

MIN_KEY_BITS = 1024  # AWS signs with 1024 bits in most regions
_RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")  # RFC 3279: rsaEncryption, NULL
_PEM_FRAME = re.compile(r"-----(?:BEGIN|END)\s*PUBLIC\s*KEY-----|,")  # or the comma between two keys
_SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")  # RFC 8017, section 9.2, note 1


class Verification(Enum):
    GENUINE = "the document is signed and names the sender"
    ABSENT = "the message carries no signed instance identity document"
    FORGED = "the signature of its identity document is by none of the trusted keys"
    UNREADABLE = "its identity document cannot be read"
    OTHER_INSTANCE = "its identity document names another instance"
    OTHER_ADDRESS = "its identity document names another private address"
    OTHER_ACCOUNT = "its identity document names another AWS account"


@dataclass(frozen=True)
class PublicKey:
    modulus: int  # of the RSA key
    exponent: int  # of the RSA key

    @property
    def size(self) -> int:  # in bytes
        """Size in bytes."""
        return (self.modulus.bit_length() + 7) // 8


Keys = tuple[PublicKey, ...]


def parse_keys(text: str) -> Keys:
    """Parse one or several RSA public keys in the format that `openssl x509 -pubkey -noout` prints. The BEGIN and END
    lines may be missing. Raises ValueError.

    Keys are also parsed if their line breaks were removed, or became spaces or `\\n`, as happens in parameters and
    settings.
    """
    key_texts = ["".join(body.split()) for body in _PEM_FRAME.split(text.replace("\\r", " ").replace("\\n", " "))]
    if not any(key_texts):
        raise ValueError("must contain at least one public key")
    return tuple(_parse_key(key_text) for key_text in key_texts if key_text)


def judge(signed: SignedDocument | None, instance: str, address: str, keys: Keys, account: str = "") -> Verification:
    """Whether the document `signed` proves that the sender is the instance `instance` at the private address `address`
    and belongs to the AWS account `account`. If `account` is empty, the document may name any account.
    """
    if signed is None:
        return Verification.ABSENT
    document = signed.document.encode()
    if not any(_signed_by(key, document, signed.signature) for key in keys):
        return Verification.FORGED
    try:
        document_fields = json.loads(document)
        document_values = (document_fields["instanceId"], document_fields["privateIp"], document_fields["accountId"])
    except (ValueError, KeyError, TypeError):
        return Verification.UNREADABLE
    for actual, expected, verdict in zip(
        document_values,
        (instance, address, account or document_values[2]),
        (Verification.OTHER_INSTANCE, Verification.OTHER_ADDRESS, Verification.OTHER_ACCOUNT),
        strict=True,
    ):
        if actual != expected:
            return verdict
    return Verification.GENUINE


def _signed_by(key: PublicKey, document: bytes, signature: str) -> bool:
    try:
        signature_bytes = base64.b64decode("".join(signature.split()), validate=True)
    except (binascii.Error, ValueError):
        return False
    signature_number = int.from_bytes(signature_bytes)
    if len(signature_bytes) != key.size or signature_number >= key.modulus:
        return False
    digest_info = _SHA256_PREFIX + hashlib.sha256(document).digest()
    expected_block = b"\x00\x01" + b"\xff" * (key.size - len(digest_info) - 3) + b"\x00" + digest_info
    return pow(signature_number, key.exponent, key.modulus).to_bytes(key.size) == expected_block


def _parse_key(body: str) -> PublicKey:
    """Parse a public key in the format SubjectPublicKeyInfo (RFC 5280), that is, DER in base64."""
    try:
        key_info = _DerReader(base64.b64decode(body, validate=True)).read_element(0x30)
        algorithm, key_bits = key_info.read_element(0x30), key_info.read_element(0x03)
        key_numbers = _DerReader(key_bits.data[1:]).read_element(0x30)
        modulus, exponent = (int.from_bytes(key_numbers.read_element(0x02).data, signed=True) for _ in range(2))
    except (binascii.Error, ValueError, IndexError) as error:
        raise ValueError(
            "must contain only RSA public keys, as `openssl x509 -pubkey -noout -in CERTIFICATE` prints them"
        ) from error
    if algorithm.data != _RSA_ALGORITHM[2:] or modulus < 0 or modulus.bit_length() < MIN_KEY_BITS or exponent < 3:
        raise ValueError(f"must contain only RSA public keys of at least {MIN_KEY_BITS} bits")
    return PublicKey(modulus, exponent)


class _DerReader:
    """A reader for consecutive elements in DER, the binary format of keys."""

    def __init__(self, data: bytes) -> None:
        self.data, self._at = data, 0

    def read_element(self, tag: int) -> _DerReader:
        """Read the content of the next DER element, which must have this tag. Raises IndexError or ValueError if the
        element is missing, damaged or has another tag.
        """
        if self.data[self._at] != tag:
            raise ValueError("the DER element has an unexpected tag")
        content_length, content_start = self.data[self._at + 1], self._at + 2
        if content_length & 0x80:
            length_size = content_length & 0x7F
            content_length, content_start = (
                int.from_bytes(self.data[content_start : content_start + length_size]),
                content_start + length_size,
            )
        self._at = content_start + content_length
        if self._at > len(self.data):
            raise ValueError("the DER element is cut short")
        return _DerReader(self.data[content_start : self._at])
