"""What a launcher tells a node that it starts: one line of JSON on the node's standard input, and on no command line,
as the token is in it.
"""

from __future__ import annotations

import json

from dyntrain.controller.contract.messages import CoordinatorEndpoint
from pydantic import BaseModel, ConfigDict, SecretStr


class NodeSpec(BaseModel):
    """`servers`: ps-lite servers that it offers, a scheduler besides; 0: none. `slots`: how many workers it has."""

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
        """The token in the clear: for the pipe to the node only."""
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})
