"""The node's configuration, read from its cluster's parameter."""

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

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_FSTAB = re.compile(r"[\s\\]")


class Parameters(Protocol):
    """Parameter Store. Its calls block, so they are made in a thread."""

    def get(self, *names: str) -> Mapping[str, str]:
        """Return decrypted values by name, without names that do not exist. A request has at most ten names.

        Raises ServiceUnavailable.
        """
        ...


@dataclass(frozen=True)
class Access:
    """Address, certificate and token of the coordinator."""

    endpoint: CoordinatorEndpoint
    token: SecretStr


def parse_node_config(cluster: str, text: str) -> NodeConfig:
    """Parse the configuration. Raises InvalidConfiguration, which names each wrong field."""
    name = parameter(cluster, "node")
    try:
        config = NodeConfig.model_validate_json(text)
    except ValidationError as error:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: {wrong_fields(error)}") from error
    if config.cluster != cluster:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field cluster is {config.cluster!r}")
    if config.training_cmd and not config.training_cmd[0]:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field training_cmd names no program")
    if not config.mount.startswith("/") or not config.mount.strip(
        "/"
    ):  # otherwise each node would use its own disk as the shared volume
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: field mount must be an absolute path below /, not {config.mount!r}"
        )
    if config.working_directory is not None and not config.working_directory.startswith("/"):
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: field working_directory must be an absolute path, not "
            f"{config.working_directory!r}"
        )
    if config.volume is not None and _NOT_IN_FSTAB.search(config.mount):
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: field mount must have no white space and no backslash, for the "
            f"volume is mounted there by a line in fstab: {config.mount!r}"
        )
    try:
        clocks_of(config)
    except ValueError as error:
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: fields liveness_seconds and progress_seconds: {error}"
        ) from error
    try:
        trusted_keys(config.identity_keys, "")
    except ValueError as error:
        raise InvalidConfiguration(f"parameter {name} of cluster {cluster}: field identity_keys {error}") from error
    if wrong_names := sorted(key for key in config.environment if not _VARIABLE.fullmatch(key)):
        raise InvalidConfiguration(
            f"parameter {name} of cluster {cluster}: field environment has names that are no variable names: "
            f"{', '.join(map(repr, wrong_names))}"
        )
    return config


def with_volume_at(config: NodeConfig, place: Path) -> NodeConfig:
    """Copy of the configuration for a host on which the volume is already at `place`."""
    paths = {
        name: _with_volume_at(value, config.mount, place)
        for name in ("prepare_script", "working_directory")
        if (value := getattr(config, name)) is not None
    }
    update = {"mount": str(place), "volume": None, **paths}
    return config.model_copy(update=update)


def _with_volume_at(path: str, mount: str, place: Path) -> str:
    return str(place / Path(path).relative_to(mount)) if Path(path).is_relative_to(mount) else path


def with_code(config: NodeConfig) -> NodeConfig:
    """The configuration; if the code is in S3, a copy with the prepare-data that fetches the code."""
    return config if config.code is None else config.model_copy(update={"prepare_script": fetch.__file__})


def working_folder(config: NodeConfig) -> str:
    """Working directory of the training command."""
    if config.working_directory is not None:
        return config.working_directory
    return config.mount if config.code is None else str(Path(config.mount) / fetch.FOLDER)


def clocks_of(config: NodeConfig) -> Clocks:
    """The configured timeouts. Raises ValueError for contradictory timeouts, with which no coordinator starts."""
    return Clocks(config.liveness_seconds, config.progress_seconds)


async def read_node_config(parameters: Parameters, cluster: str) -> NodeConfig:
    """Read the configuration. Raises ServiceUnavailable (also while the parameter does not exist) or
    InvalidConfiguration.
    """
    name = parameter(cluster, "node")
    text = (await asyncio.to_thread(parameters.get, name)).get(name)
    if text is None:
        raise ServiceUnavailable(
            f"the parameter {name} does not exist: is {cluster} the name of a cluster in this region?"
        )
    return parse_node_config(cluster, text)


def wrong_fields(error: ValidationError) -> str:
    """Text with each wrong field and its error, without the value, which may be long or secret."""
    return "; ".join(
        f"field {'.'.join(str(part) for part in item['loc']) or '(all)'}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False)
    )
