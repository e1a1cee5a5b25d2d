"""The settings of a stage, that is, of one deployed controller, from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG, ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.instance_identity import Keys
from dyntrain.controller.contract.region_keys import REGION, UNVERIFIED, trusted_keys
from dyntrain.controller.contract.stage import Stage

IDENTITY_KEYS = "DYNTRAIN_IDENTITY_KEYS"


@dataclass(frozen=True)
class Settings:
    """Settings of the controller's functions. `identity_keys` verify the identity documents of reports; without keys,
    reports are accepted unverified. With `stage` None, the clusters of all stages are served.
    """

    table: str | None = None
    elastic: ElasticTag = ELASTIC_TAG
    identity_keys: Keys = ()
    stage: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from `DYNTRAIN_TABLE`, `DYNTRAIN_ELASTIC_SUFFIX`, `DYNTRAIN_STAGE` and
        `DYNTRAIN_IDENTITY_KEYS`.

        `DYNTRAIN_IDENTITY_KEYS` contains public keys, the word unverified, or the word region. The default is region,
        which stands for AWS's key of `AWS_REGION`, if known. Raises Misconfigured, with the variable's name, for an
        empty variable and for invalid keys.
        """
        table, stage = environment.get("DYNTRAIN_TABLE"), environment.get("DYNTRAIN_STAGE")
        suffix = environment.get("DYNTRAIN_ELASTIC_SUFFIX", cls.elastic.suffix)
        keys, region = environment.get(IDENTITY_KEYS, REGION), environment.get("AWS_REGION", "")
        variables = {"DYNTRAIN_TABLE": table, "DYNTRAIN_ELASTIC_SUFFIX": suffix, "DYNTRAIN_STAGE": stage}
        for name, value in {**variables, IDENTITY_KEYS: keys}.items():
            if value is not None and not value.strip():
                raise Misconfigured(f"{name} is empty; unset it for the default or give it a value")
        try:
            return cls(table, ElasticTag(suffix), trusted_keys(keys, region), stage)
        except ValueError as error:
            raise Misconfigured(f"{IDENTITY_KEYS} {error}; or say {REGION} or {UNVERIFIED}") from error

    def of_function(self) -> Stage:
        """The stage of a Lambda function. The function's stack sets the name of the table. Raises Misconfigured without
        a table.
        """
        if self.table is None:
            raise Misconfigured(
                "DYNTRAIN_TABLE is not set: the controller's stack has to set it to the name of its table"
            )
        return Stage(self.stage, self.table, self.elastic)
