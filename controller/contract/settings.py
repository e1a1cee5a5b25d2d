"""Read the settings of a stage, that is, of one deployed controller, from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG, ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.instance_identity import Keys
from dyntrain.controller.contract.region_keys import REGION, UNVERIFIED, trusted_keys
from dyntrain.controller.contract.stage import Stage

IDENTITY_KEYS = "DYNTRAIN_IDENTITY_KEYS"  # an environment variable


@dataclass(frozen=True)
class Settings:
    """The settings of the controller's Lambda functions. `identity_keys` verify the instance identity documents in
    reports. If `identity_keys` is empty, reports are accepted unverified. If `stage` is None, the functions serve the
    clusters of all stages.
    """

    table: str | None = None  # the DynamoDB table's name
    elastic: ElasticTag = ELASTIC_TAG  # the tag by which people ask instances to join
    identity_keys: Keys = ()  # trusted keys for identity documents
    stage: str | None = None  # None: all stages

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from `DYNTRAIN_TABLE`, `DYNTRAIN_ELASTIC_SUFFIX`, `DYNTRAIN_STAGE` and
        `DYNTRAIN_IDENTITY_KEYS`.

        `DYNTRAIN_IDENTITY_KEYS` contains public keys, the word unverified, or the word region (the default). The word
        region means AWS's public key for the region in `AWS_REGION`, or no key if AWS's key is unknown. Raises
        Misconfigured, with the variable's name, if a variable is empty or contains invalid keys.
        """
        table, stage = environment.get("DYNTRAIN_TABLE"), environment.get("DYNTRAIN_STAGE")
        suffix = environment.get("DYNTRAIN_ELASTIC_SUFFIX", cls.elastic.suffix)
        keys_setting, region = environment.get(IDENTITY_KEYS, REGION), environment.get("AWS_REGION", "")
        variables = {"DYNTRAIN_TABLE": table, "DYNTRAIN_ELASTIC_SUFFIX": suffix, "DYNTRAIN_STAGE": stage}
        for variable_name, value in {**variables, IDENTITY_KEYS: keys_setting}.items():
            if value is not None and not value.strip():
                raise Misconfigured(
                    f"the environment variable {variable_name} is empty: unset it for the default, or give it a value"
                )
        try:
            return cls(table, ElasticTag(suffix), trusted_keys(keys_setting, region), stage)
        except ValueError as error:
            raise Misconfigured(f"{IDENTITY_KEYS} {error}, or the word {REGION} or {UNVERIFIED}") from error

    def function_stage(self) -> Stage:
        """The stage to which a Lambda function with these settings belongs. Raises Misconfigured if the function's
        stack has not set the name of the DynamoDB table.
        """
        if self.table is None:
            raise Misconfigured(
                "DYNTRAIN_TABLE is not set: the controller's stack has to set it to the name of its table"
            )
        return Stage(self.stage, self.table, self.elastic)
