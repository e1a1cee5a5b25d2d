"""Configuration of the CloudWatch agent for this node's logs: a log group per cluster, streams by job and instance.

Without the agent the logs stay on the host.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-Agent-Configuration-File-Details.html
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program, explain
from dyntrain.node_bootstrap.instance.identity import Identity

AGENT_SECONDS = 60.0
FLUSH_SECONDS = 5  # a terminated machine loses its output of at most so many seconds
BEFORE_A_JOB = "no-job"
log = logging.getLogger(__name__)


def agent_config(identity: Identity, job: str, layout: Layout, workers: int = 1) -> dict[str, Any]:
    """The agent's configuration. Each stream has one log file: the agent follows the latest file of a pattern."""
    streams = {
        "node": layout.node_log.name,
        "worker": "worker.log",
        **{f"worker-{slot}": f"worker-{slot}.log" for slot in range(1, workers)},
        "ps-lite": "pslite.log",
        "coordinator": "coordinator.log",
        "prepare": "prepare-*.log",
    }
    files = [
        {
            "file_path": str(layout.logs / name),
            "log_group_name": f"/dyntrain/{identity.cluster}",
            "log_stream_name": f"{identity.cluster}/{job}/{identity.instance_id}/{stream}",
        }
        for stream, name in streams.items()
    ]
    return {"logs": {"logs_collected": {"files": {"collect_list": files}}, "force_flush_interval": FLUSH_SECONDS}}


class LogShipping:
    """Keeps the agent's configuration up to date."""

    def __init__(self, identity: Identity, layout: Layout, children: Children, workers: int = 1) -> None:
        self._identity, self._layout, self._children, self._workers = identity, layout, children, workers
        self._job = asyncio.Queue[str]()
        self.follow(BEFORE_A_JOB)

    def follow(self, job: str) -> None:
        """Send the logs to the streams of `job` from now on."""
        self._job.put_nowait(job)

    async def run(self) -> None:
        """Configure the agent for each new job, until cancelled. Failures are only logged."""
        last_error = ""
        while True:
            try:
                await self._apply(await self._job.get())
            except (OSError, NodeError) as error:
                if last_error != str(error):
                    log.warning(
                        "the CloudWatch agent does not follow this node's logs",
                        extra={"reason": str(error)},
                    )
                last_error = str(error)

    async def _apply(self, job: str) -> None:
        """Configure the agent if its configuration differs. The agent keeps its configuration across restarts."""
        path, agent = self._layout.agent_config, self._layout.agent
        config_text = json.dumps(agent_config(self._identity, job, self._layout, self._workers), indent=2) + "\n"
        if not agent.exists() or (path.exists() and path.read_text(encoding="utf-8") == config_text):
            return
        path.unlink(missing_ok=True)  # the file exists only if the agent has accepted it
        new_path = path.with_name(f"new-{path.name}")
        write_atomically(new_path, config_text)
        command = [str(agent), "-a", "append-config", "-m", "ec2", "-s", "-c", f"file:{new_path}"]
        program = Program(command, {}, self._layout.logs / "agent.log")
        code, child = await self._children.run("cloudwatch-agent", program, AGENT_SECONDS)
        if reason := explain(code, AGENT_SECONDS):
            raise OSError(f"{agent}: {reason}: {child.last_output(lines=5)}")
        new_path.rename(path)
        log.info("the CloudWatch agent follows this node's logs", extra={"job": job})
