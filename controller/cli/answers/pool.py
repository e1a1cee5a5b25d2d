"""Read what the reserved pool is decided on, as AWS has it now."""

from __future__ import annotations

from dyntrain.controller.adapters.on_aws import aws_pool_ports
from dyntrain.controller.contract.stage import Stage
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.pool.gather import inputs_of, read_pools
from dyntrain.controller.pool.rebalance import pool_policies


def inputs_from_aws(stage: Stage) -> Inputs:
    world = aws_pool_ports(stage.table, attempts=2, stage=stage.name)
    registry = Registry(world.ports.parameters, world.ports.clock, stage.name)
    policies = pool_policies(registry)
    stored = world.ledger.get()
    return inputs_of(read_pools(world, registry, policies, stored, stage.elastic), policies, stored)
