"""A socket pair of which a child process inherits one end, so no other process can connect."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import ClassVar, Self


class InheritedSocket:
    """The parent's end. The child inherits `theirs` and `environment`; then call `close_child_end`. Close it after the
    child.
    """

    variable: ClassVar[str]  # environment variable with the child's file descriptor
    kind: ClassVar[int] = socket.SOCK_STREAM

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, self.kind)
        self._ours.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def theirs(self) -> int:
        return self._theirs.fileno()

    @property
    def environment(self) -> dict[str, str]:
        return {self.variable: str(self.theirs)}

    def close_child_end(self) -> None:
        """Close our copy of the child's end, once the child has started."""
        self._theirs.close()

    def close(self) -> None:
        """Close both ends; safe to call twice."""
        self._ours.close()
        self._theirs.close()
