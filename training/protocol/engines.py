"""Names of the communication engines, and the variable that tells a worker which one the job uses."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["pslite", "horovod"]
VARIABLE = "DYNTRAIN_ENGINE"
