"""Verify by a signed instance identity document that a message comes from the instance that it names. Pure.

EC2 signs each instance's document with PKCS#1 v1.5 over SHA-256. Only the instance itself can read the document and the
signature. AWS publishes the region's certificate:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-signature.html . A document is valid as long as its instance
lives. Anyone who can read an instance's metadata or messages can copy its document, and a document does not prove that
a message is new.

This module verifies signatures itself (RFC 8017, section 8.2.2): it builds the expected block and compares the whole
block, without parsing. A library would double the size and the cold start of the Lambda package.
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
_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")  # RFC 3279: rsaEncryption, NULL
_FRAME = re.compile(r"-----(?:BEGIN|END)\s*PUBLIC\s*KEY-----|,")
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")  # RFC 8017, section 9.2, note 1


class Verification(Enum):
    GENUINE = "the document is signed and names the sender"
    ABSENT = "it carries no signed instance identity document"
    FORGED = "the signature of its identity document is by none of the trusted keys"
    UNREADABLE = "its identity document cannot be read"
    OTHER_INSTANCE = "its identity document is another instance's"
    OTHER_ADDRESS = "its identity document names another private address"
    OTHER_ACCOUNT = "its identity document is of another account"


@dataclass(frozen=True)
class PublicKey:
    modulus: int
    exponent: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return (self.modulus.bit_length() + 7) // 8


Keys = tuple[PublicKey, ...]


def parse_keys(text: str) -> Keys:
    """Parse one or several RSA public keys as `openssl x509 -pubkey -noout` prints them. The PEM frame may be missing.
    Raises ValueError.

    Parameters and settings may turn line breaks into spaces, `\\n` or nothing. Keys with such changes are parsed, too.
    """
    bodies = ["".join(part.split()) for part in _FRAME.split(text.replace("\\r", " ").replace("\\n", " "))]
    if not any(bodies):
        raise ValueError("holds no public key")
    return tuple(_parse_key(body) for body in bodies if body)


def judge(signed: SignedDocument | None, instance: str, address: str, keys: Keys, account: str = "") -> Verification:
    """Whether `signed` proves that the sender is `instance` at `address` and, unless empty, belongs to `account`."""
    if signed is None:
        return Verification.ABSENT
    document = signed.document.encode()
    if not any(_signed_by(key, document, signed.signature) for key in keys):
        return Verification.FORGED
    try:
        identity = json.loads(document)
        document_values = (identity["instanceId"], identity["privateIp"], identity["accountId"])
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
    number = int.from_bytes(signature_bytes)
    if len(signature_bytes) != key.size or number >= key.modulus:
        return False
    tail = _SHA256 + hashlib.sha256(document).digest()
    expected = b"\x00\x01" + b"\xff" * (key.size - len(tail) - 3) + b"\x00" + tail
    return pow(number, key.exponent, key.modulus).to_bytes(key.size) == expected


def _parse_key(body: str) -> PublicKey:
    """Parse a key in the format SubjectPublicKeyInfo (RFC 5280): DER in base64."""
    try:
        outer = _Der(base64.b64decode(body, validate=True)).take(0x30)
        algorithm, key_bits = outer.take(0x30), outer.take(0x03)
        numbers = _Der(key_bits.data[1:]).take(0x30)
        modulus, exponent = (int.from_bytes(numbers.take(0x02).data, signed=True) for _ in range(2))
    except (binascii.Error, ValueError, IndexError) as error:
        raise ValueError(
            "holds something that is no RSA public key: give what `openssl x509 -pubkey -noout -in CERTIFICATE` prints"
        ) from error
    if algorithm.data != _ALGORITHM[2:] or modulus < 0 or modulus.bit_length() < MIN_KEY_BITS or exponent < 3:
        raise ValueError(f"holds a key that is no RSA public key of at least {MIN_KEY_BITS} bits")
    return PublicKey(modulus, exponent)


class _Der:
    """A reader for consecutive DER elements."""

    def __init__(self, data: bytes) -> None:
        self.data, self._at = data, 0

    def take(self, tag: int) -> _Der:
        """The content of the next element, which has this tag. Raises IndexError or ValueError for other elements."""
        if self.data[self._at] != tag:
            raise ValueError("unexpected element")
        length, start = self.data[self._at + 1], self._at + 2
        if length & 0x80:
            count = length & 0x7F
            length, start = int.from_bytes(self.data[start : start + count]), start + count
        self._at = start + length
        if self._at > len(self.data):
            raise ValueError("the element is cut short")
        return _Der(self.data[start : self._at])
