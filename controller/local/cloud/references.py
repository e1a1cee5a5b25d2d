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

_SSM_REFERENCE = re.compile(r"\{\{resolve:ssm:([^:}$]+)\}\}")  # a $ belongs to a Fn::Sub that is not evaluated yet

# https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/
# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
PUBLIC_IMAGE_PARAMETERS = (
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
)
AMAZON_LINUX_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


def add_public_images(account: Account) -> None:
    """Add the public parameters of machine images to moto's parameters. API calls cannot add the public parameters,
    because no account may write below /aws/service.
    """
    ssm_backend: Any = ssm_backends[account.number][account.region]
    for parameter_name in PUBLIC_IMAGE_PARAMETERS:
        image_parameter = copy(ssm_backend.get_parameter(AMAZON_LINUX_PARAMETER))
        image_parameter.name = parameter_name
        ssm_backend._parameters[parameter_name].append(image_parameter)


def _is_wait_condition(get_att: Any, resources_map: Any) -> bool:
    if not isinstance(get_att, list):
        return False
    declared_resource = resources_map._resource_json_map.get(get_att[0], {})
    return bool(declared_resource.get("Type") == "AWS::CloudFormation::WaitCondition")


def make_moto_resolve_references() -> None:
    """Make moto's CloudFormation resolve dynamic references, also in the results of template functions. This function
    may be called more than once.
    """
    # moto warns of each resource whose type it does not know
    warnings.filterwarnings("ignore", "Tried to parse AWS::", module="moto.cloudformation")
    logging.getLogger("moto").setLevel(logging.ERROR)
    original_clean_json = parsing.clean_json
    if original_clean_json.__module__ == __name__:
        return

    def clean_json(resource_json: Any, resources_map: Any) -> Any:
        if isinstance(resource_json, dict) and _is_wait_condition(resource_json.get("Fn::GetAtt"), resources_map):
            return "{}"  # moto creates no wait condition, so the condition has no data
        cleaned_json = original_clean_json(resource_json, resources_map)
        if isinstance(cleaned_json, list):
            # moto leaves AWS::NoValue in lists, as None
            cleaned_json = [item for item in cleaned_json if item is not None]
        return (
            _SSM_REFERENCE.sub(lambda match: parameter_value(match[1], resources_map), cleaned_json)
            if isinstance(cleaned_json, str)
            else cleaned_json
        )

    def parameter_value(name: str, resources_map: Any) -> str:
        parameter = ssm_backends[resources_map._account_id][resources_map._region_name].get_parameter(name)
        if parameter is None:
            raise ValidationError(message=f"Parameters: [ssm:{name}] cannot be found.")
        return str(parameter.value)

    parsing.clean_json = clean_json
