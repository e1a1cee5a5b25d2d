"""What the node needs of AWS. Both calls block, and are made in threads of their own."""

from __future__ import annotations

from typing import Protocol

from controller.contract import NodeReport


class Parameters(Protocol):
    def get(self, name: str, *, secret: bool = False) -> str | None:
        """The parameter's value (`secret`: decrypted), or None when it does not exist. Raises ServiceUnavailable."""
        ...


class Reports(Protocol):
    def put(self, report: NodeReport) -> None:
        """The event bus took the report; nothing says that anybody handled it. Raises ServiceUnavailable."""
        ...
