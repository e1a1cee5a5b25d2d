"""A socket pair of which a child process inherits one end: what passes between a supervisor and what it started, with
nobody else able to join.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import ClassVar, Self


class InheritedSocket:
    """The parent's end. `theirs` is for the child to inherit, with `environment`; then call `handed_over`. Close it
    once the child has ended.
    """

    variable: ClassVar[str]  # tells the child its file descriptor
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

    def handed_over(self) -> None:
        self._theirs.close()

    def close(self) -> None:
        """Safe to call twice."""
        self._ours.close()
        self._theirs.close()
