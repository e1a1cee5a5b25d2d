"""`dyntrain local`: the embedded cloud from the command line."""

from __future__ import annotations

import importlib.util
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.contract import elastic_tag, parameter
from controller.local.errors import LocalCloudError, MotoMissing
from controller.local.signals import Ended, ended_by_signals

if TYPE_CHECKING:
    from controller.local.cloud import Cloud
    from controller.local.cluster import Cluster


PACKAGES = ("moto", "flask", "sklearn")


def require_packages(names: tuple[str, ...] = PACKAGES) -> None:
    """Raises MotoMissing, before anything imports what is not there."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise MotoMissing(f"the embedded cloud needs {', '.join(missing)}: install dyntrain[local]")


@click.group()
def local() -> None:
    """The embedded cloud: AWS on this machine, for trying things out."""


@local.command()
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="Port of the endpoint on 127.0.0.1; 0 picks a free one.")
@click.option("--cluster", "name", default="demo", show_default=True, help="Name of the cluster to set up.")
@click.option("--base-workers", type=click.IntRange(0), default=1, show_default=True, help="Base nodes besides the master.")
@click.option("--job/--no-job", default=True, show_default=True, help="Launch the base nodes, which start the training job.")
@click.option("--epochs", type=click.IntRange(1), default=50, show_default=True, help="Epochs of the handwritten digits.")
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), help="Where to keep files, and leave them; default: a temporary folder."
)
@click.option("--resync-seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Period of the controller's resync.")
@click.option("--namespaces", is_flag=True, help="Each machine is a network namespace with an address and a link of its own (Linux, root, iproute2).")
@click.argument("command", nargs=-1)
def up(**chosen: Any) -> None:
    """Run the cloud with a cluster in it until Ctrl-C. COMMAND, after --, trains something else than the handwritten digits."""
    try:
        require_packages()
        _serve(_Up(**chosen))
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except Ended as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(0 if end.number == signal.SIGINT else 128 + end.number) from None


@local.command()
@click.option("--epochs", type=click.IntRange(2), default=20, show_default=True, help="Epochs of the training job; the story has to fit in.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), default=Path("build/demo/report.json"), show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the endpoint on 127.0.0.1; default: a free one.")
def demo(epochs: int, report: Path, port: int) -> None:
    """Show a job that gains and loses workers while it trains, and write a report of what was seen."""
    try:
        require_packages((*PACKAGES, "rich"))
        from controller.local.demo import run_demo

        with ended_by_signals():
            code = run_demo(report, epochs, port)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except Ended as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(128 + end.number) from None
    raise SystemExit(code)


@local.command()
@click.option("--duration", type=click.FloatRange(10), default=60.0, show_default=True, help="Seconds of faults.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed plans the same faults and changes.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), default=Path("build/chaos/report.json"), show_default=True)
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), help="Where to keep files, and leave them; default: a temporary folder."
)
@click.option(
    "--namespaces/--no-namespaces",
    default=None,
    help="Whether each machine is a network namespace, so that links are cut too (Linux, root, iproute2); default: where that can be had.",
)
def chaos(duration: float, seed: int, report: Path, directory: Path | None, namespaces: bool | None) -> None:
    """Hunt for faults: kill, freeze, throttle and disorder everything while people change the cluster, then see whether all is as wished."""
    try:
        require_packages()
        from controller.local.chaos import run_chaos
        from controller.local.namespaces import available

        with ended_by_signals():
            code = run_chaos(duration, seed, report, directory, available() if namespaces is None else namespaces)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except Ended as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(128 + end.number) from None
    raise SystemExit(code)


@dataclass(frozen=True)
class _Up:
    """The options of `up`, as click names them."""

    port: int
    name: str
    base_workers: int
    job: bool
    epochs: int
    directory: Path | None
    resync_seconds: float
    namespaces: bool
    command: tuple[str, ...]


def _serve(chosen: _Up) -> None:
    from controller.local.cloud import Cloud
    from controller.local.cluster import ClusterPlan, digits_command, provision, write_prepare_script
    from controller.local.options import Options

    options, resync_seconds = Options(namespaces=chosen.namespaces), chosen.resync_seconds
    with ended_by_signals(), Cloud(port=chosen.port, state_dir=chosen.directory, resync_seconds=resync_seconds, options=options) as cloud:
        mount = cloud.state_dir / "shared"
        plan = ClusterPlan(
            cluster=chosen.name,
            mount=mount,
            training_cmd=chosen.command or digits_command(mount, chosen.epochs),
            prepare_script=write_prepare_script(mount),
            base_workers=chosen.base_workers,
            job=chosen.job,
            policy={"resync_seconds": resync_seconds},
            identity_keys=cloud.identity_keys,
        )
        cluster = provision(cloud.environment, plan)
        click.echo(guide(cloud, cluster))
        while True:
            signal.pause()


def guide(cloud: Cloud, cluster: Cluster) -> str:
    """What a person needs to use the cloud, to be pasted as it is."""
    variables = cloud.environment
    tag = elastic_tag(cluster.name)
    keys = " ".join(f"{name}={value}" for name, value in variables.items() if name != "AWS_ENDPOINT_URL")
    base = ", ".join(filter(None, (cluster.master, *cluster.workers))) or "none (--no-job)"
    return f"""\
The embedded cloud is up at {cloud.endpoint}. Paste this into another terminal:

  export AWS_ENDPOINT_URL={cloud.endpoint}
  export {keys}

cluster          {cluster.name}
base nodes       {base}
launch template  {cluster.launch_template}
group            {cluster.group}
files            {cloud.state_dir} (logs/trace.jsonl has every event and invocation)

Add a worker, either way:
  aws ec2 run-instances --count 1 --launch-template LaunchTemplateName={cluster.launch_template} --query 'Instances[].InstanceId' --output text
  aws autoscaling set-desired-capacity --auto-scaling-group-name {cluster.group} --desired-capacity 1

Remove it again:
  aws ec2 delete-tags --resources INSTANCE --tags Key={tag}
  aws autoscaling set-desired-capacity --auto-scaling-group-name {cluster.group} --desired-capacity 0

Watch:
  dyntrain status --cluster {cluster.name} --watch
  aws ec2 describe-tags --filters Name=key,Values=elastic_worker_status
  aws ssm get-parameter --name {parameter(cluster.name, "target")} --query Parameter.Value --output text

Ctrl-C ends it all and leaves nothing behind."""
