"""Connect commands and the page to a deployed stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a command that only prints its help needs none of it
    from dyntrain.controller.contract.elastic_tag import ElasticTag
    from dyntrain.controller.loops.ports import Ports
    from dyntrain.controller.loops.registry import Registry


class Connection(NamedTuple):
    ports: Ports
    registry: Registry
    elastic: ElasticTag
