"""Names of the communication engines, and the variables that tell their processes what to be."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["pslite", "horovod"]
VARIABLE = "DYNTRAIN_ENGINE"
SERVER_MEMORY = "DYNTRAIN_SERVER_MEMORY"  # bytes that a ps-lite server is given before it needs them
