"""Settings of a node that `dyntrain launch` starts.

The settings are a line of JSON on the node's standard input, as other users can read the token on a command line.
"""

from __future__ import annotations

import json

from dyntrain.controller.contract.messages import CoordinatorEndpoint
from pydantic import BaseModel, ConfigDict, SecretStr


class NodeSpec(BaseModel):
    """The settings of a node that `dyntrain launch` starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str  # id of the node
    private_ip: str  # address of the node
    endpoint: CoordinatorEndpoint  # address and certificate of the coordinator
    token: SecretStr  # proves to the coordinator who connects
    mount: str  # directory of the shared volume
    base: bool  # whether the node is a base node
    servers: int = 0  # number of ps-lite servers that the node offers
    warm_spares: int = 0  # number of workers to start in advance
    slots: int = 1  # number of the node's workers
    liveness_seconds: float  # --liveness-seconds
    progress_seconds: float  # --progress-seconds
    command: tuple[str, ...]  # the training command
    worker_environment: dict[str, str] = {}  # extra variables of workers
    server_environment: dict[str, str] = {}  # extra variables of ps-lite processes
    dt_scripts: bool = False  # whether scripts of AWS Dynamic Training run unchanged

    def to_json(self) -> str:
        """Serialize the settings with the token in clear text, to be written only to the pipe to the node."""
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})
