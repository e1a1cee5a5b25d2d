"""Step that checks whether the node's Python packages are installed, and whether MXNet can use the GPUs."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

from dyntrain.missing import advice, find_absent
from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration
from dyntrain.node_bootstrap.instance.mxnet_build import check_mxnet_on_gpus, mxnet_builds_in
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep


class CheckPackages(NodeStep):
    step_name, needed_steps, prepares_host = "package", (ReadConfiguration,), True

    async def check(self) -> StepCondition:
        if self._missing_packages() or len(_installed_mxnet_builds()) > 1:
            return pending("a package of the node's programs is missing, or several builds of MXNet are installed")
        if not self.carried_out and await self.run.gpu_count():
            return pending("MXNet has not been tried on the GPUs yet")
        return DONE

    async def carry_out_step(self) -> None:
        if missing_packages := self._missing_packages():
            message = f"{', '.join(missing_packages)} is not installed for {sys.executable}; {advice(missing_packages)}"
            raise InvalidConfiguration(message.rstrip("; "))
        if len(mxnet_builds := _installed_mxnet_builds()) > 1:
            raise InvalidConfiguration(
                f"{' and '.join(mxnet_builds)} are installed for {sys.executable}, and each has overwritten files "
                "of the other: uninstall all of them, then install the one that this machine needs"
            )
        if gpu_count := await self.run.gpu_count():
            dependencies = self.run.dependencies
            log_path = dependencies.layout.log_folder / "mxnet.log"
            await check_mxnet_on_gpus(
                gpu_count, dependencies.cuda_probe, dependencies.nvidia_smi, self.run.children, log_path
            )
        self.carried_out = True

    def _missing_packages(self) -> tuple[str, ...]:
        return find_absent(self.run.dependencies.packages)


def _installed_mxnet_builds() -> list[str]:
    return mxnet_builds_in(distribution.name for distribution in distributions())
