"""Steps that read the node's identity and its cluster's configuration."""

from __future__ import annotations

from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.instance.identity import read_identity
from dyntrain.node_bootstrap.reports.config import read_node_config, with_code_fetching_script, with_volume_at
from dyntrain.node_bootstrap.steps.run import ConfiguredNode, NodeStep


class ReadIdentity(NodeStep):
    step_name, prepares_host, only_reads = "identity", True, True

    async def check(self) -> StepCondition:
        return DONE if self.run.identity else pending("the node's identity has not been read yet")

    async def carry_out_step(self) -> None:
        self.run.identity = identity = await read_identity(self.run.metadata)
        self.run.log_context |= {"cluster": identity.cluster, "instance": identity.instance_id}


class ReadConfiguration(NodeStep):
    step_name, prepares_host, only_reads = "config", True, True

    async def check(self) -> StepCondition:
        return DONE if self.run.configuration else pending("the cluster's configuration has not been read yet")

    async def carry_out_step(self) -> None:
        identity = self.run.known_identity
        dependencies = self.run.dependencies
        parameters = dependencies.parameters(identity.region)
        config = await read_node_config(parameters, identity.cluster)
        if dependencies.volume is not None:
            config = with_volume_at(config, dependencies.volume.absolute())
        self.run.configuration = ConfiguredNode(identity, with_code_fetching_script(config), parameters)
