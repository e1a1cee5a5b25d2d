"""Two features of SSM that moto's CloudFormation lacks: dynamic references in templates, `{{resolve:ssm:NAME}}`, and
AWS's public parameters of images.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/dynamic-references-ssm.html
"""

from __future__ import annotations

import logging
import re
import warnings
from copy import copy
from typing import Any

from dyntrain.controller.local.account import Account
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.ssm.models import ssm_backends

_REFERENCE = re.compile(r"\{\{resolve:ssm:([^:}$]+)\}\}")  # a $ belongs to a Fn::Sub that is not evaluated yet

# https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
PUBLIC_IMAGES = (
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
)
AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


def add_public_images(account: Account) -> None:
    """Add the images' parameters to moto's own parameters: through the API, no account may write below /aws/service."""
    parameters: Any = ssm_backends[account.number][account.region]
    for name in PUBLIC_IMAGES:
        image = copy(parameters.get_parameter(AMAZON_LINUX))
        image.name = name
        parameters._parameters[name].append(image)


def _is_wait_condition(get_att: Any, resources_map: Any) -> bool:
    if not isinstance(get_att, list):
        return False
    declared = resources_map._resource_json_map.get(get_att[0], {})
    return bool(declared.get("Type") == "AWS::CloudFormation::WaitCondition")


def resolve_references() -> None:
    """Make moto's CloudFormation resolve dynamic references, also in the results of functions. Safe to repeat."""
    # moto warns of each resource whose type it does not know
    warnings.filterwarnings("ignore", "Tried to parse AWS::", module="moto.cloudformation")
    logging.getLogger("moto").setLevel(logging.ERROR)
    original = parsing.clean_json
    if original.__module__ == __name__:
        return

    def clean_json(resource_json: Any, resources_map: Any) -> Any:
        if isinstance(resource_json, dict) and _is_wait_condition(resource_json.get("Fn::GetAtt"), resources_map):
            return "{}"  # moto creates no wait condition, so the condition has no data
        cleaned = original(resource_json, resources_map)
        if isinstance(cleaned, list):
            cleaned = [item for item in cleaned if item is not None]  # AWS::NoValue, which moto leaves in lists
        return (
            _REFERENCE.sub(lambda match: parameter_value(match[1], resources_map), cleaned)
            if isinstance(cleaned, str)
            else cleaned
        )

    def parameter_value(name: str, resources_map: Any) -> str:
        parameter = ssm_backends[resources_map._account_id][resources_map._region_name].get_parameter(name)
        if parameter is None:
            raise ValidationError(message=f"Parameters: [ssm:{name}] cannot be found.")
        return str(parameter.value)

    parsing.clean_json = clean_json
