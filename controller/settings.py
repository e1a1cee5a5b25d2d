"""What a deployed stage is told through its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.contract import ELASTIC_TAG_SUFFIX
from controller.errors import Misconfigured


@dataclass(frozen=True)
class Settings:
    table: str = "dyntrain"
    elastic_suffix: str = ELASTIC_TAG_SUFFIX

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """From `DYNTRAIN_TABLE` and `DYNTRAIN_ELASTIC_SUFFIX`. Raises Misconfigured, naming the variable, for an empty one."""
        settings = cls(environment.get("DYNTRAIN_TABLE", cls.table), environment.get("DYNTRAIN_ELASTIC_SUFFIX", cls.elastic_suffix))
        for name, value in (("DYNTRAIN_TABLE", settings.table), ("DYNTRAIN_ELASTIC_SUFFIX", settings.elastic_suffix)):
            if not value.strip():
                raise Misconfigured(f"{name} is empty; unset it for the default or give it a value")
        return settings
