"""Find the table and the other settings of a deployed controller, which its CloudFormation stack writes to SSM
parameters. Nodes, the coordinator and the command line find the settings with this module.

In one AWS account and region, several controllers may be deployed. Each controller is a *stage* with its own table and
tag suffix. A cluster belongs to one stage, which the cluster's policy names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from pydantic import Field

STAGES = "/dyntrain/-stage-/"  # path of all stages' SSM parameters; no cluster's name begins with a hyphen
STAGE_NAME = r"^[a-z][a-z0-9-]{0,31}$"  # a regular expression
StageName = Annotated[str, Field(pattern=STAGE_NAME)]


@dataclass(frozen=True)
class Stage:
    """A deployed controller. If a user set the name of the DynamoDB table by hand, `name` is None, and the controller
    serves every cluster. `identity` says how the controller verifies the senders of reports: `region`, `unverified` or
    `keys`. If the way of verification is unknown, `identity` is "".
    """

    name: str | None  # None: the table was named by hand
    table: str  # the DynamoDB table's name
    elastic: ElasticTag  # the tag by which people ask instances to join
    identity: str = ""  # how senders are verified


def stage_parameter(stage: str, leaf: Literal["table", "tables", "suffix", "identity"]) -> str:
    """The name of an SSM parameter of a stage. The parameter `tables` contains a pattern that matches the name of the
    stage's present DynamoDB table and the name of any table that replaces the present table later.
    """
    return f"{STAGES}{stage}/{leaf}"


def stage_names(parameters: Collection[str]) -> list[str]:
    """The names of the stages, found in the names of their SSM parameters."""
    return sorted(
        {
            parameter_name.removeprefix(STAGES).partition("/")[0]
            for parameter_name in parameters
            if parameter_name.startswith(STAGES)
        }
    )


def chosen_stage(parameters: Mapping[str, str], stage_name: str | None) -> Stage:
    """The stage with the name `stage_name`, or the only stage if `stage_name` is None. `parameters` are all SSM
    parameters below `STAGES`. Raises Misconfigured if no stage has this name, if `stage_name` is None although there
    are several stages, or if the stage lacks a parameter.
    """
    known_names = stage_names(parameters)
    if not known_names:
        raise Misconfigured(
            f"no controller is deployed in this account and region (there is nothing below {STAGES}): run make deploy, "
            "or check AWS_PROFILE and AWS_DEFAULT_REGION"
        )
    if stage_name is None and len(known_names) > 1:
        raise Misconfigured(
            f"several controllers are deployed here ({', '.join(known_names)}): choose one by --stage or DYNTRAIN_STAGE"
        )
    chosen_name = stage_name if stage_name is not None else known_names[0]
    if chosen_name not in known_names:
        raise Misconfigured(
            f"there is no stage {chosen_name!r} in this account and region; there are: {', '.join(known_names)}"
        )
    leaf_values = {
        leaf_name: parameters.get(stage_parameter(chosen_name, leaf_name)) for leaf_name in ("table", "suffix")
    }
    if missing_leaves := [leaf_name for leaf_name, value in leaf_values.items() if not value]:
        raise Misconfigured(
            f"stage {chosen_name!r} has no parameter {STAGES}{chosen_name}/{missing_leaves[0]}: "
            "deploy the stage again, or delete it"
        )
    identity = parameters.get(stage_parameter(chosen_name, "identity"), "")
    return Stage(chosen_name, str(leaf_values["table"]), ElasticTag(str(leaf_values["suffix"])), identity)


def unclear_owner_problem(named: str | None, stages: Collection[str]) -> str:
    """A text that says why no stage owns a cluster whose policy names the stage `named`. Returns "" if a stage owns the
    cluster.
    """
    if named is not None or len(stages) < 2:
        return ""
    return f"stage: several controllers are deployed here ({', '.join(sorted(stages))}); the policy has to name its own"
