"""A socket pair of which a child process inherits one end. No other process can connect to the sockets."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import ClassVar, Self


class InheritedSocket:
    """A socket pair between this process and a child.

    Start the child so that it inherits `child_fd` and gets the variables `environment`, and then call
    `close_child_end`.

    Call `close` after the child has ended.
    """

    variable: ClassVar[str]  # environment variable with the child's file descriptor
    kind: ClassVar[int] = socket.SOCK_STREAM  # type of the sockets

    def __init__(self) -> None:
        self._parent_end, self._child_end = socket.socketpair(socket.AF_UNIX, self.kind)
        self._parent_end.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def child_fd(self) -> int:
        return self._child_end.fileno()

    @property
    def environment(self) -> dict[str, str]:
        return {self.variable: str(self.child_fd)}

    def close_child_end(self) -> None:
        """Close the parent's copy of the child's end, once the child has started."""
        self._child_end.close()

    def close(self) -> None:
        """Close both ends of the socket pair, unless they are closed already."""
        self._parent_end.close()
        self._child_end.close()
