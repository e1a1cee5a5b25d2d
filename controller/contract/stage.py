"""Find the resources of a deployed controller through parameters that its stack writes; nodes, coordinator and command
line read them.

One account and region may hold several controllers, each a *stage* with a table and a suffix of its own. A cluster
belongs to one of them, which its policy names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Misconfigured
from pydantic import Field

STAGES = "/dyntrain/-stage-/"  # beside the clusters' parameters: no name of a cluster begins with a hyphen
STAGE_NAME = r"^[a-z][a-z0-9-]{0,31}$"
StageName = Annotated[str, Field(pattern=STAGE_NAME)]


@dataclass(frozen=True)
class Stage:
    """A deployed controller. `name` None: the table was named by hand, and every cluster is served. `identity`: how its
    functions verify senders, a word of `region_keys`; "" when the stage does not say.
    """

    name: str | None
    table: str
    elastic: ElasticTag
    identity: str = ""


def stage_parameter(stage: str, leaf: Literal["table", "tables", "suffix", "identity"]) -> str:
    """The name of a stage's parameter. `tables` is a pattern for the names that CloudFormation gives to the stage's
    table and its successors.
    """
    return f"{STAGES}{stage}/{leaf}"


def stage_names(parameters: Collection[str]) -> list[str]:
    """The stages that the names of the parameters below `STAGES` contain."""
    return sorted({name.removeprefix(STAGES).partition("/")[0] for name in parameters if name.startswith(STAGES)})


def chosen_stage(parameters: Mapping[str, str], stage_name: str | None) -> Stage:
    """The stage of that name, or the only one. `parameters`: everything below `STAGES`. Raises Misconfigured, with what
    to do, when there is none or a name is needed.
    """
    names = stage_names(parameters)
    if not names:
        raise Misconfigured(
            f"no controller is deployed in this account and region (there is nothing below {STAGES}): run make deploy, "
            "or look at AWS_PROFILE and AWS_DEFAULT_REGION"
        )
    if stage_name is None and len(names) > 1:
        raise Misconfigured(
            f"several controllers are deployed here ({', '.join(names)}): say which one, by --stage or DYNTRAIN_STAGE"
        )
    name = stage_name if stage_name is not None else names[0]
    if name not in names:
        raise Misconfigured(f"there is no stage {name!r} in this account and region; there are: {', '.join(names)}")
    values = {leaf: parameters.get(stage_parameter(name, leaf)) for leaf in ("table", "suffix")}
    if missing := [leaf for leaf, value in values.items() if not value]:
        raise Misconfigured(
            f"stage {name!r} has no parameter {STAGES}{name}/{missing[0]}: deploy it again, or delete what is left"
        )
    identity = parameters.get(stage_parameter(name, "identity"), "")
    return Stage(name, str(values["table"]), ElasticTag(str(values["suffix"])), identity)


def unclear_owner(named: str | None, stages: Collection[str]) -> str:
    """Why no stage owns a cluster whose policy names the stage `named`; "" when one does."""
    if named is not None or len(stages) < 2:
        return ""
    return f"stage: several controllers are deployed here ({', '.join(sorted(stages))}); the policy has to name its own"
