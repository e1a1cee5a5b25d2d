"""Configures the CloudWatch agent to send this node's logs to a log group per cluster, in streams per job and instance.

On a host without the CloudWatch agent, the logs stay on the host.
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
from dyntrain.node_bootstrap.host.processes import Children, Program, explain_exit
from dyntrain.node_bootstrap.instance.identity import Identity

CONFIGURE_SECONDS = 60.0  # time limit for configuring the CloudWatch agent
FLUSH_SECONDS = 5  # a terminated machine loses its output of at most so many seconds
NO_JOB = "no-job"  # takes the place of the job in the names of streams before the first job
log = logging.getLogger(__name__)


def agent_config(identity: Identity, job: str, layout: Layout, workers: int = 1) -> dict[str, Any]:
    """Return the CloudWatch agent's configuration, with one log stream for each name or name pattern of log files.

    Of the files that match a pattern, the agent sends the latest.
    """
    log_name_by_stream = {
        "node": layout.node_log.name,
        "worker": "worker.log",
        **{f"worker-{slot}": f"worker-{slot}.log" for slot in range(1, workers)},
        "ps-lite": "pslite.log",
        "coordinator": "coordinator.log",
        "prepare": "prepare-*.log",
    }
    collected_files = [
        {
            "file_path": str(layout.log_folder / log_name),
            "log_group_name": f"/dyntrain/{identity.cluster}",
            "log_stream_name": f"{identity.cluster}/{job}/{identity.instance_id}/{stream}",
        }
        for stream, log_name in log_name_by_stream.items()
    ]
    return {
        "logs": {"logs_collected": {"files": {"collect_list": collected_files}}, "force_flush_interval": FLUSH_SECONDS}
    }


class LogShipping:
    """Keeps the CloudWatch agent's configuration up to date: the agent sends the logs of the current job."""

    def __init__(self, identity: Identity, layout: Layout, children: Children, workers: int = 1) -> None:
        self._identity, self._layout, self._children, self._workers = identity, layout, children, workers
        self._job = asyncio.Queue[str]()
        self.set_job(NO_JOB)

    def set_job(self, job: str) -> None:
        """Make the CloudWatch agent send the logs to the streams of `job` from now on."""
        self._job.put_nowait(job)

    async def run(self) -> None:
        """Configure the CloudWatch agent for each new job, until cancelled.

        If the agent cannot be configured, a warning is logged.
        """
        last_error = ""
        while True:
            try:
                await self._configure_agent(await self._job.get())
            except (OSError, NodeError) as error:
                if last_error != str(error):
                    log.warning(
                        "the CloudWatch agent does not follow this node's logs",
                        extra={"reason": str(error)},
                    )
                last_error = str(error)

    async def _configure_agent(self, job: str) -> None:
        """Configure the CloudWatch agent for `job`, unless the agent already has this configuration.

        The agent keeps its configuration when it is restarted.
        """
        config_path, agent_program = self._layout.cloudwatch_agent_config, self._layout.cloudwatch_agent
        config_text = json.dumps(agent_config(self._identity, job, self._layout, self._workers), indent=2) + "\n"
        if not agent_program.exists() or (
            config_path.exists() and config_path.read_text(encoding="utf-8") == config_text
        ):
            return
        config_path.unlink(missing_ok=True)  # the file exists only if the agent has accepted it
        new_config_path = config_path.with_name(f"new-{config_path.name}")
        write_atomically(new_config_path, config_text)
        command = [str(agent_program), "-a", "append-config", "-m", "ec2", "-s", "-c", f"file:{new_config_path}"]
        program = Program(command, {}, self._layout.log_folder / "agent.log")
        exit_code, child = await self._children.run("cloudwatch-agent", program, CONFIGURE_SECONDS)
        if failure_reason := explain_exit(exit_code, CONFIGURE_SECONDS):
            raise OSError(f"{agent_program}: {failure_reason}: {child.last_output(lines=5)}")
        new_config_path.rename(config_path)
        log.info("the CloudWatch agent follows this node's logs", extra={"job": job})
