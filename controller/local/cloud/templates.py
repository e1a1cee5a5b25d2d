"""Read templates with libyaml's parser, or as JSON: moto's own reading, with PyYAML's Python, takes longer than
everything that it then creates from them.
"""

from __future__ import annotations

import json
from typing import Any

import yaml  # type: ignore[import-untyped]
from moto.cloudformation.models import Stack
from moto.cloudformation.utils import yaml_tag_constructor


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader that knows the short forms of functions, `!Ref` and the like."""


_Loader.add_multi_constructor("", yaml_tag_constructor)
# moto's own makes a function `Fn::Condition` of it, which is none, and then takes the condition for false
_Loader.add_constructor("!Condition", lambda _loader, node: {"Condition": node.value})


def parsed(template: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(template) if template.startswith("{") else _Loader(template).get_single_data()
    return document


def read_fast() -> None:
    """Make moto's CloudFormation read this way. Safe to repeat."""
    Stack.parse_template = staticmethod(parsed)  # type: ignore[method-assign]
