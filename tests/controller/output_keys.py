"""The keys of a command's JSON, without its values."""

from __future__ import annotations

import json
from typing import Any


def keys_of(output: str) -> Any:
    """Of one JSON document, or of a document a line."""
    try:
        return shape(json.loads(output))
    except json.JSONDecodeError:
        return merged([shape(json.loads(line)) for line in output.splitlines()])


def shape(value: Any) -> Any:
    """Objects with the shapes of their values, lists with the shape that their elements have together."""
    match value:
        case dict():
            return {key: shape(value[key]) for key in sorted(value)}
        case list():
            return [merged([shape(element) for element in value])]
        case _:
            return "value"


def merged(shapes: list[Any]) -> Any:
    """One shape with the keys of all."""
    objects = [each for each in shapes if isinstance(each, dict)]
    if objects:
        return {
            key: merged([each[key] for each in objects if key in each])
            for key in sorted({k for o in objects for k in o})
        }
    lists = [element for each in shapes if isinstance(each, list) for element in each]
    return [merged(lists)] if any(isinstance(each, list) for each in shapes) else "value"
