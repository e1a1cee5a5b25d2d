"""Temporary replacement of attributes of other people's modules and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Attribute = tuple[Any, str, Callable[[Any], Any]]  # owner, name, function from the present value to its replacement


class Replaced:
    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[Any, bool]] = {}

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        own = name in vars(owner)  # otherwise a class inherits it
        before = vars(owner)[name] if own else getattr(owner, name)
        self._before.setdefault((id(owner), name), (before, own))
        setattr(owner, name, make(before))

    def put_back(self, owner: Any, name: str) -> None:
        before, own = self._before.pop((id(owner), name))
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
