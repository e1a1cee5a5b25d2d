"""One end of a connection in memory: for what frames say, without a socket."""

from __future__ import annotations


class Bytes:
    """One end of a connection: what is sent is collected, what was given is received."""

    def __init__(self, given: bytes = b"") -> None:
        self.sent, self._given = b"", given

    def sendall(self, data: bytes) -> None:
        self.sent += bytes(data)

    def recv_into(self, into: memoryview) -> int:
        count = min(len(into), len(self._given), 7)  # never as much as was asked for
        into[:count], self._given = self._given[:count], self._given[count:]
        return count
