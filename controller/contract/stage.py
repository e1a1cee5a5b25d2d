"""Find the resources of a deployed controller in SSM parameters that its stack writes. Nodes, the coordinator and the
command line use this module.

One account and region may have several controllers. Each controller is a *stage* with its own table and tag suffix. A
cluster belongs to one stage, which the cluster's policy names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from pydantic import Field

STAGES = "/dyntrain/-stage-/"  # differs from all parameters of clusters, because no cluster's name begins with a hyphen
STAGE_NAME = r"^[a-z][a-z0-9-]{0,31}$"
StageName = Annotated[str, Field(pattern=STAGE_NAME)]


@dataclass(frozen=True)
class Stage:
    """A deployed controller. With `name` None, the table was named by hand, and every cluster is served. `identity` is
    a word of `region_keys` that says how the controller verifies senders; "" when the stage does not say so.
    """

    name: str | None
    table: str
    elastic: ElasticTag
    identity: str = ""


def stage_parameter(stage: str, leaf: Literal["table", "tables", "suffix", "identity"]) -> str:
    """The name of a stage's parameter. `tables` is a pattern for the names that CloudFormation gives to the stage's
    table and to later tables.
    """
    return f"{STAGES}{stage}/{leaf}"


def stage_names(parameters: Collection[str]) -> list[str]:
    """The names of the stages, taken from the names of the parameters below `STAGES`."""
    return sorted({name.removeprefix(STAGES).partition("/")[0] for name in parameters if name.startswith(STAGES)})


def chosen_stage(parameters: Mapping[str, str], stage_name: str | None) -> Stage:
    """The stage with this name, or the only stage. `parameters` are all parameters below `STAGES`. Raises
    Misconfigured, with a remedy, when no stage exists or when a name is needed.
    """
    names = stage_names(parameters)
    if not names:
        raise Misconfigured(
            f"no controller is deployed in this account and region (there is nothing below {STAGES}): run make deploy, "
            "or check AWS_PROFILE and AWS_DEFAULT_REGION"
        )
    if stage_name is None and len(names) > 1:
        raise Misconfigured(
            f"several controllers are deployed here ({', '.join(names)}): choose one by --stage or DYNTRAIN_STAGE"
        )
    name = stage_name if stage_name is not None else names[0]
    if name not in names:
        raise Misconfigured(f"there is no stage {name!r} in this account and region; there are: {', '.join(names)}")
    values = {leaf: parameters.get(stage_parameter(name, leaf)) for leaf in ("table", "suffix")}
    if missing := [leaf for leaf, value in values.items() if not value]:
        raise Misconfigured(
            f"stage {name!r} has no parameter {STAGES}{name}/{missing[0]}: deploy the stage again, or delete it"
        )
    identity = parameters.get(stage_parameter(name, "identity"), "")
    return Stage(name, str(values["table"]), ElasticTag(str(values["suffix"])), identity)


def unclear_owner(named: str | None, stages: Collection[str]) -> str:
    """Why no stage owns a cluster whose policy names the stage `named`; "" when a stage owns the cluster."""
    if named is not None or len(stages) < 2:
        return ""
    return f"stage: several controllers are deployed here ({', '.join(sorted(stages))}); the policy has to name its own"
