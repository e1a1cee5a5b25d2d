"""Names of the communication engines (ps-lite and Horovod), and environment variables for the engines' processes."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["pslite", "horovod"]
VARIABLE = "DYNTRAIN_ENGINE"  # environment variable with the engine's name
SERVER_MEMORY = "DYNTRAIN_SERVER_MEMORY"  # bytes that a ps-lite server allocates at its start
