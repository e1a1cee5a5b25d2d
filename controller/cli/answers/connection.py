"""The connection of a command or of the dashboard to a deployed stage of the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # not imported at run time, so that `--help` is fast
    from dyntrain.controller.contract.elastic_tag import ElasticTag
    from dyntrain.controller.loops.ports import Ports
    from dyntrain.controller.loops.registry import Registry


class Connection(NamedTuple):  # to a deployed stage, through AWS's API
    ports: Ports  # the adapters to AWS
    registry: Registry  # the policies of all registered clusters
    elastic: ElasticTag  # the tag that marks elastic workers
