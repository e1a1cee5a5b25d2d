"""The frames of a state transfer's connection: JSON objects (words), chunks of the state, and signs of life.

By default, a connection is encrypted with AES-256-GCM, and its key is derived from the generation's transfer token. If
the job's options say so, frames are not encrypted, but have a checksum. With and without encryption, a damaged,
repeated or missing frame is detected when the next frame is opened. The token itself is never sent: the client sends a
proof that it knows the token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
from enum import IntEnum
from typing import Any, Protocol

import xxhash
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SALT_BYTES = 16  # of each side, for one connection
TAG_BYTES = 16  # of AES-GCM, and of XXH3-128
MAX_WORDS_BYTES = 4096  # of a frame with a JSON object
_HEAD = struct.Struct(">BI")  # kind and size of a frame
_NONCE = struct.Struct(">IQ")  # kind and number of a frame


class StreamError(OSError):
    """The received bytes are no valid frame: damaged, cut short, or from a sender that does not know the token."""


class FrameKind(IntEnum):
    WAIT = 0  # a sign of life: the sender waits for the next chunk itself
    WORDS = 1  # a JSON object
    CHUNK = 2  # a part of the state


class Seal(Protocol):
    """Protects the frames of one connection: `close` encodes a frame, `open` checks and decodes a received frame.

    The frames must be opened in the order in which they were closed.
    """

    def close(self, kind: FrameKind, data: memoryview) -> bytes: ...

    def open(self, kind: FrameKind, sealed: memoryview, into: memoryview) -> None:
        """Check a sealed frame and write its data into `into`.

        Raises StreamError if the frame is damaged or out of order.
        """


class EncryptingSeal:
    def __init__(self, token: str, salt: bytes) -> None:
        key = HKDF(SHA256(), 32, salt, b"dyntrain: the state of a generation").derive(token.encode())
        self._cipher, self._frames = AESGCM(key), 0

    def close(self, kind: FrameKind, data: memoryview) -> bytes:
        return self._cipher.encrypt(self._nonce(kind), data, None)

    def open(self, kind: FrameKind, sealed: memoryview, into: memoryview) -> None:
        try:
            self._cipher.decrypt_into(self._nonce(kind), sealed, None, into)
        except InvalidTag as error:
            raise StreamError("a frame arrived damaged") from error

    def _nonce(self, kind: FrameKind) -> bytes:
        self._frames += 1  # never repeats under one key: each connection has its own key, and only one side sends
        return _NONCE.pack(kind, self._frames)


class ChecksumSeal:
    """Frames without encryption, for a network that no other party can reach: damage is detected, but not forgery."""

    def __init__(self) -> None:
        self._frames = 0

    def close(self, kind: FrameKind, data: memoryview) -> bytes:
        return b"".join((data, self._frame_checksum(kind, data)))

    def open(self, kind: FrameKind, sealed: memoryview, into: memoryview) -> None:
        into[:] = sealed[:-TAG_BYTES]
        if self._frame_checksum(kind, into) != sealed[-TAG_BYTES:]:
            raise StreamError("a frame arrived damaged")

    def _frame_checksum(self, kind: FrameKind, data: memoryview) -> bytes:
        self._frames += 1
        hasher = xxhash.xxh3_128(_NONCE.pack(kind, self._frames))
        hasher.update(data)
        return hasher.digest()


def seal(token: str, salt: bytes, clear: bool) -> Seal:
    """Return an object that seals and opens one connection's frames.

    `salt` is the client's salt followed by the server's salt.
    """
    return ChecksumSeal() if clear else EncryptingSeal(token, salt)


def proof(token: str, generation: int, salt: str) -> str:
    """Return the proof that a client knows the generation's token: an HMAC of the generation and the salt."""
    return hmac.new(token.encode(), f"state {generation} {salt}".encode(), hashlib.sha256).hexdigest()


def send_sign_of_life(connection: socket.socket) -> None:
    """Send a sign of life, which is an empty frame. Raises OSError."""
    connection.sendall(_HEAD.pack(FrameKind.WAIT, 0))


def send(connection: socket.socket, seal: Seal, kind: FrameKind, data: memoryview) -> None:
    """Send a frame. Blocks until the kernel has buffered the whole frame. Raises OSError."""
    sealed_frame = seal.close(kind, data)
    connection.sendall(_HEAD.pack(kind, len(sealed_frame)))
    connection.sendall(sealed_frame)


def send_words(connection: socket.socket, seal: Seal, words: dict[str, Any]) -> None:
    send(connection, seal, FrameKind.WORDS, memoryview(json.dumps(words).encode()))


class Receiver:
    """Receives frames into one buffer, which grows to the size of the largest allowed frame if needed."""

    def __init__(self, connection: socket.socket, seal: Seal, largest: int) -> None:
        self._connection, self._seal, self._largest = connection, seal, max(largest, MAX_WORDS_BYTES) + TAG_BYTES
        self._buffer = memoryview(bytearray(MAX_WORDS_BYTES + TAG_BYTES))

    def next(self) -> tuple[FrameKind, memoryview]:
        """Receive the next frame, and return its kind and its sealed bytes, which the next call overwrites.

        Raises OSError.
        """
        kind_code, frame_size = _HEAD.unpack(receive_exactly(self._connection, memoryview(bytearray(_HEAD.size))))
        is_valid_size = frame_size == 0 if kind_code == FrameKind.WAIT else TAG_BYTES <= frame_size <= self._largest
        if kind_code not in FrameKind.__members__.values() or not is_valid_size:
            raise StreamError("the received bytes are no frame of a state transfer")
        if frame_size > len(self._buffer):
            self._buffer = memoryview(bytearray(self._largest))
        return FrameKind(kind_code), receive_exactly(self._connection, self._buffer[:frame_size])

    def words(self, sealed: memoryview) -> dict[str, Any]:
        """Open a frame with a JSON object, and return the object. Raises StreamError for any other frame."""
        json_bytes = bytearray(len(sealed) - TAG_BYTES)
        self._seal.open(FrameKind.WORDS, sealed, memoryview(json_bytes))
        try:
            message = json.loads(json_bytes)
        except ValueError as error:
            raise StreamError("the other side's message is no JSON") from error
        if not isinstance(message, dict):
            raise StreamError("the other side's message is no JSON object")
        return message

    def open_chunk(self, sealed: memoryview, buffer: memoryview) -> None:
        """Open a frame with a chunk, and write its data to `buffer`.

        Raises StreamError for a damaged chunk or a wrong size.
        """
        if len(sealed) - TAG_BYTES != len(buffer):
            raise StreamError(f"a chunk of {len(sealed) - TAG_BYTES} bytes arrived instead of {len(buffer)} bytes")
        self._seal.open(FrameKind.CHUNK, sealed, buffer)


def receive_exactly(connection: socket.socket, buffer: memoryview) -> memoryview:
    """Receive bytes until `buffer` is full. Raises OSError, also if the connection ends before `buffer` is full."""
    bytes_received = 0
    while bytes_received < len(buffer):
        if not (byte_count := connection.recv_into(buffer[bytes_received:])):
            raise StreamError("the other side closed the connection")
        bytes_received += byte_count
    return buffer
