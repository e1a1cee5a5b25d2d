"""Read from AWS the inputs for decisions on pools of reserved instances."""

from __future__ import annotations

from dyntrain.controller.adapters.on_aws import aws_pool_ports
from dyntrain.controller.contract.stage import Stage
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.pool.gather import inputs_of, read_pools
from dyntrain.controller.pool.rebalance import pool_policies


def inputs_from_aws(stage: Stage) -> Inputs:
    pool_ports = aws_pool_ports(stage.table, attempts=2, stage=stage.name)
    registry = Registry(pool_ports.ports.parameters, pool_ports.ports.clock, stage.name)
    policies_with_pool = pool_policies(registry)
    stored_ledger = pool_ports.ledger.get()
    return inputs_of(
        read_pools(pool_ports, registry, policies_with_pool, stored_ledger, stage.elastic),
        policies_with_pool,
        stored_ledger,
    )
