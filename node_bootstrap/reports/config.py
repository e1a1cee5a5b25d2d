"""Reads and checks the node's configuration, which is in a parameter of its cluster in Parameter Store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dyntrain.controller.contract.messages import CoordinatorEndpoint, NodeConfig, parameter
from dyntrain.controller.contract.region_keys import trusted_keys
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration, ServiceUnavailable
from dyntrain.node_bootstrap.job import fetch
from dyntrain.training.protocol.clocks import Clocks
from pydantic import SecretStr, ValidationError

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORBIDDEN_IN_FSTAB = re.compile(r"[\s\\]")


class Parameters(Protocol):
    """AWS's Parameter Store. The methods of this class block, so the caller runs them in a thread."""

    def get(self, *names: str) -> Mapping[str, str]:
        """Return the decrypted values of the parameters that exist, by name. At most ten names are allowed in one call.

        Raises ServiceUnavailable.
        """
        ...


@dataclass(frozen=True)
class Access:
    """What a node needs to connect to the coordinator: the coordinator's address and certificate, and a token."""

    endpoint: CoordinatorEndpoint
    token: SecretStr


def parse_node_config(cluster: str, text: str) -> NodeConfig:
    """Parse and check `text`, a node's configuration in JSON.

    Raises InvalidConfiguration with a message that names each wrong field.
    """
    invalid_parameter = f"invalid parameter {parameter(cluster, 'node')} of cluster {cluster}"
    try:
        config = NodeConfig.model_validate_json(text)
    except ValidationError as error:
        raise InvalidConfiguration(f"{invalid_parameter}: {describe_wrong_fields(error)}") from error
    if config.cluster != cluster:
        raise InvalidConfiguration(f"{invalid_parameter}: field cluster is {config.cluster!r}")
    if config.training_cmd and not config.training_cmd[0]:
        raise InvalidConfiguration(f"{invalid_parameter}: field training_cmd names no program")
    if not config.mount.startswith("/") or not config.mount.strip(
        "/"
    ):  # otherwise each node would use its own disk as the shared volume
        raise InvalidConfiguration(
            f"{invalid_parameter}: field mount must be an absolute path below /, not {config.mount!r}"
        )
    if config.working_directory is not None and not config.working_directory.startswith("/"):
        raise InvalidConfiguration(
            f"{invalid_parameter}: field working_directory must be an absolute path, not {config.working_directory!r}"
        )
    if config.volume is not None and _FORBIDDEN_IN_FSTAB.search(config.mount):
        raise InvalidConfiguration(
            f"{invalid_parameter}: field mount must have no white space and no backslash, for the "
            f"volume is mounted there by a line in fstab: {config.mount!r}"
        )
    try:
        clocks_of(config)
    except ValueError as error:
        raise InvalidConfiguration(
            f"{invalid_parameter}: fields liveness_seconds and progress_seconds: {error}"
        ) from error
    try:
        trusted_keys(config.identity_keys, "")
    except ValueError as error:
        raise InvalidConfiguration(f"{invalid_parameter}: field identity_keys {error}") from error
    if wrong_variables := sorted(variable for variable in config.environment if not _VARIABLE_NAME.fullmatch(variable)):
        raise InvalidConfiguration(
            f"{invalid_parameter}: field environment has names that are no variable names: "
            f"{', '.join(map(repr, wrong_variables))}"
        )
    return config


def with_volume_at(config: NodeConfig, place: Path) -> NodeConfig:
    """Return a copy of the configuration for a host where the shared volume is already mounted at `place`."""
    changed_paths = {
        field_name: _path_with_volume_at(path, config.mount, place)
        for field_name in ("prepare_script", "working_directory")
        if (path := getattr(config, field_name)) is not None
    }
    changed_fields = {"mount": str(place), "volume": None, **changed_paths}
    return config.model_copy(update=changed_fields)


def _path_with_volume_at(path: str, mount: str, place: Path) -> str:
    return str(place / Path(path).relative_to(mount)) if Path(path).is_relative_to(mount) else path


def with_code_fetching_script(config: NodeConfig) -> NodeConfig:
    """Return the configuration, whose prepare-data script fetches the job's code if the code is in S3."""
    return config if config.code is None else config.model_copy(update={"prepare_script": fetch.__file__})


def working_folder(config: NodeConfig) -> str:
    """Return the working directory of the training command."""
    if config.working_directory is not None:
        return config.working_directory
    return config.mount if config.code is None else str(Path(config.mount) / fetch.CODE_FOLDER)


def clocks_of(config: NodeConfig) -> Clocks:
    """Return the timeouts that the configuration sets. Raises ValueError if the timeouts contradict each other."""
    return Clocks(config.liveness_seconds, config.progress_seconds)


async def read_node_config(parameters: Parameters, cluster: str) -> NodeConfig:
    """Read the node's configuration from Parameter Store.

    Raises InvalidConfiguration if the configuration is wrong. Raises ServiceUnavailable if AWS fails or the parameter
    does not exist.
    """
    parameter_name = parameter(cluster, "node")
    config_text = (await asyncio.to_thread(parameters.get, parameter_name)).get(parameter_name)
    if config_text is None:
        raise ServiceUnavailable(
            f"the parameter {parameter_name} does not exist: is {cluster} the name of a cluster in this region?"
        )
    return parse_node_config(cluster, config_text)


def describe_wrong_fields(error: ValidationError) -> str:
    """Return a text that names each wrong field and its error, but not the field's value, which may be secret."""
    return "; ".join(
        f"field {'.'.join(str(location_part) for location_part in field_error['loc']) or '(all)'}: {field_error['msg']}"
        for field_error in error.errors(include_input=False, include_url=False)
    )
