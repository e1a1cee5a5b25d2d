"""`dyntrain local`: the embedded cloud from the command line."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.controller.local.listening import must_be_free
from dyntrain.controller.local.signals import Ended, ended_by_signals
from dyntrain.missing import TRAINING, require

if TYPE_CHECKING:
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.signals import Ending
    from dyntrain.controller.local.stack import Cluster


HOST = "127.0.0.1"
BARE = Path("build/bare")
BARE_STOP_SECONDS = 90.0  # systemd's own patience with a unit that does not stop
PACKAGES = ("moto", "flask", "sklearn", "yaml", "chalice", "aws_lambda_powertools", *TRAINING)


@click.group(epilog="Examples:\n\n\b\n  dyntrain local demo\n  dyntrain local up --dashboard")
def local() -> None:
    """The embedded cloud: AWS on this machine, for trying things out."""


@local.command(
    epilog="Examples:\n\n\b\n  dyntrain local up --dashboard --allow-changes\n"
    "  dyntrain local up --base-workers 2 --directory /tmp/cloud -- python train.py"
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=5000,
    show_default=True,
    help="Port of the endpoint on 127.0.0.1; 0 picks a free one.",
)
@click.option("--cluster", "name", default="demo", show_default=True, help="Name of the cluster to set up.")
@click.option(
    "--base-workers", type=click.IntRange(0, 32), default=1, show_default=True, help="Base nodes besides the master."
)
@click.option(
    "--epochs", type=click.IntRange(1), default=50, show_default=True, help="Epochs of the handwritten digits."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep files, and leave them; default: a temporary folder.",
)
@click.option(
    "--resync-seconds",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Period of the controller's resync.",
)
@click.option(
    "--namespaces",
    is_flag=True,
    help="Each machine is a network namespace with an address and a link of its own (Linux, root, iproute2).",
)
@click.option(
    "--machines",
    type=click.Choice(["plain", "bare"]),
    default="plain",
    show_default=True,
    help="bare: systems with a systemd of their own, which run the cluster template's user data (Linux, root).",
)
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What bare machines install from S3: this project's wheel.",
)
@click.option("--dashboard/--no-dashboard", default=False, help="Show the cluster as a page, and print its address.")
@click.option(
    "--dashboard-port", type=click.IntRange(0, 65535), default=0, help="Port of the page; default: a free one."
)
@click.option("--allow-changes", is_flag=True, help="Let the page scale, add, remove and replace. Needs --dashboard.")
@click.argument("command", nargs=-1)
def up(**chosen: Any) -> None:
    """Run the cloud with a cluster in it until Ctrl-C. COMMAND, after --, trains something else than the handwritten
    digits.
    """
    try:
        options = _Up(**chosen)
        if options.allow_changes and not options.dashboard:
            raise click.UsageError("--allow-changes is for the page: give --dashboard, too")
        shown = {"--dashboard-port": options.dashboard_port} if options.dashboard else {}
        must_be_free(HOST, {"--port": options.port, **shown})  # before the imports, which take seconds
        require(PACKAGES)
        _serve(options)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except Ended as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(0 if end.number == signal.SIGINT else 128 + end.number) from None


@local.command(epilog="Examples:\n\n\b\n  dyntrain local demo --report demo.json --picture demo.svg")
@click.option(
    "--epochs",
    type=click.IntRange(2),
    default=1000,
    show_default=True,
    help="Epochs after which the job ends by itself; the demo ends when its story is told, which has to fit in.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("build/demo/report.json"),
    show_default=True,
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the endpoint on 127.0.0.1; default: a free one."
)
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Write what the demo showed as an SVG, too."
)
def demo(epochs: int, report: Path, port: int, picture: Path | None) -> None:
    """Show a job that gains and loses workers while it trains, and write a report of what was seen."""
    try:
        must_be_free(HOST, {"--port": port})
        require(PACKAGES)
        from dyntrain.controller.local.demo.story import run_demo

        with ended_by_signals():
            code = run_demo(report, epochs, port, picture)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except Ended as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(128 + end.number) from None
    raise SystemExit(code)


@local.command(epilog="Examples:\n\n\b\n  dyntrain local chaos --duration 600 --seed 7")
@click.option("--duration", type=click.FloatRange(10), default=60.0, show_default=True, help="Seconds of faults.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed plans the same faults and changes.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("build/chaos/report.json"),
    show_default=True,
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep files, and leave them; default: a temporary folder.",
)
@click.option(
    "--engine",
    type=click.Choice(["pslite", "horovod"]),
    default="pslite",
    show_default=True,
    help="What sums the gradients of the job.",
)
@click.option(
    "--namespaces/--no-namespaces",
    default=None,
    help=(
        "Whether each machine is a network namespace, so that links are cut and slow too, and the volume hangs (Linux, "
        "root, iproute2); default: where that can be had."
    ),
)
def chaos(
    duration: float, seed: int, report: Path, directory: Path | None, engine: str, namespaces: bool | None
) -> None:
    """Hunt for faults: kill, freeze, throttle and disorder everything while people change the cluster, then see whether
    all is as wished.
    """
    try:
        require(PACKAGES)
        from dyntrain.controller.local.chaos.hunt import run_chaos
        from dyntrain.controller.local.chaos.volume import in_a_mount_namespace
        from dyntrain.controller.local.machines.namespaces import available

        hosts = available() if namespaces is None else namespaces
        if hosts:
            in_a_mount_namespace(sys.argv[1:])
        with ended_by_signals():
            code = run_chaos(duration, seed, report, directory, hosts, engine)
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
    epochs: int
    directory: Path | None
    resync_seconds: float
    namespaces: bool
    machines: str
    wheel: Path | None
    dashboard: bool
    dashboard_port: int
    allow_changes: bool
    command: tuple[str, ...]


def _doing(what: str) -> None:
    """On stderr: what takes longer than a moment."""
    click.echo(f"{what} ...", err=True)


def _serve(chosen: _Up) -> None:
    if chosen.machines == "bare":
        _serve_bare(chosen)
        return
    _doing("starting the embedded cloud")
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.options import Options
    from dyntrain.controller.local.stack import create_stack, digits_command, write_prepare_script

    options, resync_seconds = Options(namespaces=chosen.namespaces), chosen.resync_seconds
    with (
        ended_by_signals() as ending,
        Cloud(port=chosen.port, state_dir=chosen.directory, resync_seconds=resync_seconds, options=options) as cloud,
    ):
        _doing(f"it listens at {cloud.endpoint}; setting up the cluster {chosen.name}")
        write_prepare_script(cloud.state_dir / "shared")
        command = chosen.command or digits_command(chosen.epochs)
        given = {"WorkerCount": str(chosen.base_workers)}
        cluster = create_stack(cloud, chosen.name, command, given, {"resync_seconds": resync_seconds})
        _wait(chosen, cloud, cluster, ending)


def _serve_bare(chosen: _Up) -> None:
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.machines.bare import image
    from dyntrain.controller.local.options import Options
    from dyntrain.controller.local.stack import PYTHON, create_stack, digits_command, fill_volume, template_text

    if chosen.wheel is None:
        raise click.UsageError("--machines bare needs --wheel: this project's wheel, as `uv build --wheel` makes it")
    _doing("making the image of a bare system, which takes a minute the first time")
    root = image.make(BARE, template_text())
    options = Options(namespaces=True, bare=root, machine_stop=BARE_STOP_SECONDS)
    with (
        ended_by_signals() as ending,
        Cloud(
            port=chosen.port, state_dir=chosen.directory, resync_seconds=chosen.resync_seconds, options=options
        ) as cloud,
    ):
        _doing(f"the cloud listens at {cloud.endpoint}; creating the stack {chosen.name}")
        fill_volume(cloud.state_dir / "shared")
        command = chosen.command or digits_command(chosen.epochs, python=PYTHON)
        given = {"WorkerCount": str(chosen.base_workers), "ImageType": "Ubuntu"}
        cluster = create_stack(cloud, chosen.name, command, given, wheel=chosen.wheel)
        _wait(chosen, cloud, cluster, ending)


def _wait(chosen: _Up, cloud: Cloud, cluster: Cluster, ending: Ending) -> None:
    from dyntrain.controller.local.viewer import dashboard

    with ExitStack() as stack:
        if chosen.dashboard:
            _doing("starting the dashboard")
            page = dashboard(
                cloud.environment, cloud.state_dir, chosen.dashboard_port, allow_changes=chosen.allow_changes
            )
            shown = stack.enter_context(page)
            click.echo(f"Dashboard: {shown}#/cluster/{cluster.name}\n")
        click.echo(guide(cloud, cluster))
        try:
            ending.wait()
        except Ended:
            _doing("stopping")
            raise


def guide(cloud: Cloud, cluster: Cluster) -> str:
    """What a person needs to use the cloud, to be pasted as it is."""
    from dyntrain.controller.contract.messages import parameter

    variables = cloud.environment
    tag = ELASTIC_TAG.of(cluster.name)
    keys = " ".join(f"{name}={value}" for name, value in variables.items() if name != "AWS_ENDPOINT_URL")
    base = ", ".join(filter(None, (cluster.master, *cluster.workers)))
    return f"""\
The embedded cloud is up at {cloud.endpoint}. Paste this into another terminal:

  export AWS_ENDPOINT_URL={cloud.endpoint}
  export {keys}

cluster          {cluster.name}
base nodes       {base}
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
  aws ec2 delete-tags --resources INSTANCE --tags Key={tag}
  aws autoscaling set-desired-capacity --auto-scaling-group-name {cluster.group} --desired-capacity 0

Watch:
  dyntrain status --cluster {cluster.name} --watch
  dyntrain logs {cluster.name} --follow --directory {cloud.state_dir}
  aws ec2 describe-tags --filters Name=key,Values=elastic_worker_status
  aws ssm get-parameter --name {parameter(cluster.name, "target")} --query Parameter.Value --output text

Ctrl-C ends it all and leaves nothing behind."""
