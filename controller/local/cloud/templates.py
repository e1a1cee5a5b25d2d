"""Parse CloudFormation templates with libyaml, or as JSON. moto's own parser, PyYAML in Python, takes longer than the
creation of all resources.
"""

from __future__ import annotations

import json
from typing import Any

import yaml  # type: ignore[import-untyped]
from moto.cloudformation.models import Stack
from moto.cloudformation.utils import yaml_tag_constructor


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that knows the short forms of template functions, such as `!Ref`."""


_Loader.add_multi_constructor("", yaml_tag_constructor)
# moto would turn `!Condition` into `Fn::Condition`, an unknown function, and take the condition for false
_Loader.add_constructor("!Condition", lambda _loader, node: {"Condition": node.value})


def parse_template(template: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(template) if template.startswith("{") else _Loader(template).get_single_data()
    return document


def use_fast_parser() -> None:
    """Make moto's CloudFormation parse templates with this module. Safe to repeat."""
    Stack.parse_template = staticmethod(parse_template)  # type: ignore[method-assign]
