"""The node's configuration and the coordinator's whereabouts, from SSM."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr, ValidationError

from controller.contract import CoordinatorEndpoint, NodeConfig, Target, parameter
from controller.instance_identity import parse_keys
from node_bootstrap.errors import InvalidConfiguration, ServiceUnavailable
from node_bootstrap.ports import Parameters
from training.clocks import Clocks

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Access:
    """What it takes to reach the coordinator."""

    endpoint: CoordinatorEndpoint
    token: SecretStr


class SsmParameters:
    """`Parameters` on SSM. Credentials come from wherever boto3 finds them: on EC2 the instance's role."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: SSMClient | None = None

    def get(self, name: str, *, secret: bool = False) -> str | None:
        try:
            if self._client is None:
                settings = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
                self._client = boto3.session.Session(region_name=self._region).client("ssm", config=settings)
            return self._client.get_parameter(Name=name, WithDecryption=secret)["Parameter"]["Value"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ParameterNotFound":
                return None
            raise ServiceUnavailable(f"cannot read the parameter {name}: {error}") from error
        except BotoCoreError as error:
            raise ServiceUnavailable(f"cannot read the parameter {name}: {error}") from error


def parse_node_config(cluster: str, text: str) -> NodeConfig:
    """Raises InvalidConfiguration, which names each wrong field."""
    name = parameter(cluster, "node")
    try:
        config = NodeConfig.model_validate_json(text)
    except ValidationError as error:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: {_fields(error)}") from error
    if config.cluster != cluster:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field cluster says {config.cluster!r}")
    if not config.training_cmd:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field training_cmd is empty")
    if not config.mount.startswith("/"):
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field mount must be an absolute path, not {config.mount!r}")
    try:
        clocks_of(config)
    except ValueError as error:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: fields liveness_seconds and progress_seconds: {error}") from error
    if config.identity_keys:
        try:
            parse_keys(config.identity_keys)
        except ValueError as error:
            raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field identity_keys {error}") from error
    if wrong := sorted(key for key in config.environment if not _VARIABLE.fullmatch(key)):
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: field environment has names that are no variable names: {', '.join(map(repr, wrong))}"
        )
    return config


def clocks_of(config: NodeConfig) -> Clocks:
    """Raises ValueError when the two do not go together: the coordinator would refuse to start with them."""
    return Clocks(config.liveness_seconds, config.progress_seconds)


async def read_node_config(parameters: Parameters, cluster: str) -> NodeConfig:
    """Raises ServiceUnavailable (also while the parameter does not exist) or InvalidConfiguration."""
    name = parameter(cluster, "node")
    text = await asyncio.to_thread(parameters.get, name)
    if text is None:
        raise ServiceUnavailable(f"the parameter {name} does not exist: is {cluster} the name of a cluster in this region?")
    return parse_node_config(cluster, text)


async def read_target(parameters: Parameters, cluster: str) -> Target | None:
    """None while none was published. Raises ServiceUnavailable, also for one that cannot be read."""
    name = parameter(cluster, "target")
    text = await asyncio.to_thread(parameters.get, name)
    try:
        return Target.model_validate_json(text) if text is not None else None
    except ValidationError as error:
        raise ServiceUnavailable(f"parameter {name} of cluster {cluster}: {_fields(error)}; waiting for the controller to write it anew") from error


async def read_wanted(parameters: Parameters, cluster: str, instance: str) -> bool:
    """Whether the controller's target lists the instance. Raises ServiceUnavailable, also for a target that cannot be read.

    A list that outgrew the parameter is not read: the coordinator does that, and admits nobody who is not on it.
    """
    target = await read_target(parameters, cluster)
    return target is not None and (target.members is None or instance in target.members)


async def read_access(parameters: Parameters, cluster: str) -> Access | None:
    """None while no coordinator has published itself. Raises ServiceUnavailable, also for an endpoint that cannot be read."""
    name = parameter(cluster, "coordinator")
    text = await asyncio.to_thread(parameters.get, name)
    token = await asyncio.to_thread(lambda: parameters.get(parameter(cluster, "token"), secret=True))
    if text is None or token is None:
        return None
    try:
        endpoint = CoordinatorEndpoint.model_validate_json(text)
    except ValidationError as error:
        raise ServiceUnavailable(f"parameter {name} of cluster {cluster}: {_fields(error)}; waiting for a coordinator to write it anew") from error
    return Access(endpoint, SecretStr(token))


def _fields(error: ValidationError) -> str:
    """Each wrong field and why; without the input, which may be long or secret."""
    return "; ".join(
        f"field {'.'.join(str(part) for part in item['loc']) or '(all)'}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False)
    )
