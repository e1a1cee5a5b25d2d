"""Parse CloudFormation templates as JSON, or as YAML with the fast library libyaml. The parser of the AWS emulator moto
is PyYAML's Python code, and takes longer than the creation of all resources of a stack.
"""

from __future__ import annotations

import json
from typing import Any

import yaml  # type: ignore[import-untyped]
from moto.cloudformation.models import Stack
from moto.cloudformation.utils import yaml_tag_constructor


class _TemplateLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that knows the short forms of template functions, such as `!Ref`."""


_TemplateLoader.add_multi_constructor("", yaml_tag_constructor)
# moto would turn `!Condition` into `Fn::Condition`, an unknown function, and take the condition for false
_TemplateLoader.add_constructor("!Condition", lambda _loader, node: {"Condition": node.value})


def parse_template(template: str) -> dict[str, Any]:
    parsed_template: dict[str, Any] = (
        json.loads(template) if template.startswith("{") else _TemplateLoader(template).get_single_data()
    )
    return parsed_template


def make_moto_use_fast_parser() -> None:
    """Make moto's CloudFormation parse templates with this module. This function may be called more than once."""
    Stack.parse_template = staticmethod(parse_template)  # type: ignore[method-assign]
