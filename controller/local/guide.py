"""The guide that `dyntrain local up` prints: command lines to paste into another terminal."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG

if TYPE_CHECKING:
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.stack import Cluster

PROGRAM_NAME = "dyntrain"


def program_folder(started_as: str, interpreter: str) -> Path:
    """The folder that contains the running `dyntrain` program, for a shell's PATH. If `dyntrain` runs as a module, the
    result is the Python interpreter's folder.
    """
    program = Path(started_as)
    return (program if program.name == PROGRAM_NAME and program.is_file() else Path(interpreter)).absolute().parent


def path_line(folder: Path) -> str:
    """The command line that puts `folder` first in PATH, for bash, zsh and sh."""
    return f'export PATH={shlex.quote(str(folder))}:"$PATH"'


def guide_text(cloud: Cloud, cluster: Cluster, job_description: str) -> str:
    """The text of the guide that `dyntrain local up` prints. `job_description` says what the job trains."""
    from dyntrain.controller.contract.messages import parameter

    variables = cloud.environment
    tag_key = ELASTIC_TAG.of(cluster.name)
    endpoint = shlex.quote(cloud.endpoint)
    variable_assignments = " ".join(
        f"{name}={shlex.quote(value)}" for name, value in variables.items() if name != "AWS_ENDPOINT_URL"
    )
    base_nodes = ", ".join(filter(None, (cluster.master, *cluster.workers)))
    return f"""\
The embedded cloud is up at {cloud.endpoint}. Paste this into another terminal:

  export AWS_ENDPOINT_URL={endpoint}
  export {variable_assignments}
  export DYNTRAIN_LOCAL_DIRECTORY={shlex.quote(str(cloud.state_dir))}
  {path_line(program_folder(sys.argv[0], sys.executable))}

cluster          {cluster.name}
job              {job_description}
base nodes       {base_nodes}
launch template  {cluster.launch_template}
group            {cluster.group}
files            {cloud.state_dir} (logs/trace.jsonl has every event and invocation)

Add a worker, one of these ways:
  dyntrain add {cluster.name}
  aws ec2 run-instances --count 1 --launch-template LaunchTemplateName={cluster.launch_template} \\
    --query 'Instances[].InstanceId' --output text
  aws autoscaling set-desired-capacity --auto-scaling-group-name {cluster.group} --desired-capacity 1

Remove it again:
  dyntrain remove INSTANCE
  aws ec2 delete-tags --resources INSTANCE --tags Key={tag_key}
  aws autoscaling set-desired-capacity --auto-scaling-group-name {cluster.group} --desired-capacity 0

Watch:
  dyntrain status --cluster {cluster.name} --watch
  dyntrain logs {cluster.name} --follow
  aws ec2 describe-tags --filters Name=key,Values=elastic_worker_status
  aws ssm get-parameter --name {parameter(cluster.name, "target")} --query Parameter.Value --output text

Ctrl-C ends the cloud and leaves nothing behind."""
