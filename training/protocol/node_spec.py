"""Settings of a launched node: a line of JSON on its standard input, as a command line would show the token."""

from __future__ import annotations

import json

from dyntrain.controller.contract.messages import CoordinatorEndpoint
from pydantic import BaseModel, ConfigDict, SecretStr


class NodeSpec(BaseModel):
    """The settings. `servers`: number of ps-lite servers that the node offers. `slots`: number of its workers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_id: str
    private_ip: str
    endpoint: CoordinatorEndpoint
    token: SecretStr
    mount: str
    base: bool
    servers: int = 0
    warm_spares: int = 0
    slots: int = 1
    liveness_seconds: float
    progress_seconds: float
    command: tuple[str, ...]
    worker_environment: dict[str, str] = {}
    server_environment: dict[str, str] = {}
    dt_scripts: bool = False

    def to_json(self) -> str:
        """Serialise the settings with the token in clear text, only for the pipe to the node."""
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})
