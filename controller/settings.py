"""What a deployed stage is told through its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.contract import ELASTIC_TAG_SUFFIX
from controller.errors import Misconfigured
from controller.instance_identity import Keys, parse_keys

UNVERIFIED = "unverified"
IDENTITY_KEYS = "DYNTRAIN_IDENTITY_KEYS"


@dataclass(frozen=True)
class Settings:
    """`identity_keys`: whose signature on an identity document proves that a report is a node's own; empty: reports are believed as they are."""

    table: str = "dyntrain"
    elastic_suffix: str = ELASTIC_TAG_SUFFIX
    identity_keys: Keys = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """From `DYNTRAIN_TABLE`, `DYNTRAIN_ELASTIC_SUFFIX` and `DYNTRAIN_IDENTITY_KEYS` (public keys, or the word unverified).

        Raises Misconfigured, naming the variable, for an empty one and for keys that are none.
        """
        table, suffix = environment.get("DYNTRAIN_TABLE", cls.table), environment.get("DYNTRAIN_ELASTIC_SUFFIX", cls.elastic_suffix)
        keys = environment.get(IDENTITY_KEYS, UNVERIFIED)
        for name, value in (("DYNTRAIN_TABLE", table), ("DYNTRAIN_ELASTIC_SUFFIX", suffix), (IDENTITY_KEYS, keys)):
            if not value.strip():
                raise Misconfigured(f"{name} is empty; unset it for the default or give it a value")
        try:
            return cls(table, suffix, () if keys.strip() == UNVERIFIED else parse_keys(keys))
        except ValueError as error:
            raise Misconfigured(f"{IDENTITY_KEYS} {error}; or say {UNVERIFIED}") from error
