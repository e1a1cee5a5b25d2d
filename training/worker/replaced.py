"""Replaces attributes of other libraries' modules and classes, and puts the original values back later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Attribute = tuple[Any, str, Callable[[Any], Any]]  # owner, name, function from the original value to its replacement


class Replaced:
    """The original values of the attributes that are replaced at present."""

    def __init__(self) -> None:
        self._originals: dict[tuple[int, str], tuple[Any, bool]] = {}

    def replace(self, owner: Any, name: str, make_replacement: Callable[[Any], Any]) -> None:
        has_own_attribute = name in vars(owner)  # otherwise the owner inherits the attribute
        original_value = vars(owner)[name] if has_own_attribute else getattr(owner, name)
        self._originals.setdefault((id(owner), name), (original_value, has_own_attribute))
        setattr(owner, name, make_replacement(original_value))

    def put_back(self, owner: Any, name: str) -> None:
        original_value, has_own_attribute = self._originals.pop((id(owner), name))
        if has_own_attribute:
            setattr(owner, name, original_value)
        else:
            delattr(owner, name)
