"""Step that checks the packages of the node's own programs. Only a person can install missing packages."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

from dyntrain.missing import absent, advice
from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration
from dyntrain.node_bootstrap.instance.mxnet_build import builds, check_cuda
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep


class CheckPackages(NodeStep):
    name, needs, host = "package", (ReadConfiguration,), True

    async def check(self) -> Condition:
        if self._missing_packages() or len(_builds()) > 1:
            return pending("a package of the node's programs is missing, or several builds of MXNet are installed")
        if not self.carried_out and await self.run.gpus():
            return pending("MXNet has not been tried on the GPUs yet")
        return DONE

    async def apply(self) -> None:
        if missing := self._missing_packages():
            message = f"{', '.join(missing)} is not installed for {sys.executable}; {advice(missing)}"
            raise InvalidConfiguration(message.rstrip("; "))
        if len(installed_builds := _builds()) > 1:
            raise InvalidConfiguration(
                f"{' and '.join(installed_builds)} are installed for {sys.executable}, and each has overwritten files "
                "of the other: uninstall all of them, then install the one that this machine needs"
            )
        if gpus := await self.run.gpus():
            dependencies = self.run.dependencies
            log_path = dependencies.layout.logs / "mxnet.log"
            await check_cuda(gpus, dependencies.cuda_probe, dependencies.nvidia_smi, self.run.children, log_path)
        self.carried_out = True

    def _missing_packages(self) -> tuple[str, ...]:
        return absent(self.run.dependencies.packages)


def _builds() -> list[str]:
    return builds(distribution.name for distribution in distributions())
