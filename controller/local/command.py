"""The command `dyntrain local`, which runs the embedded cloud, its demo and its fault-injection hunt."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click
from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.controller.local.listening import check_ports_are_free
from dyntrain.controller.local.paths import local_path
from dyntrain.controller.local.signals import EndedBySignal, raise_on_signals
from dyntrain.controller.local.up import UpOptions, serve
from dyntrain.missing import TRAINING_PACKAGES, require

LOOPBACK_HOST = "127.0.0.1"
REQUIRED_PACKAGES = ("moto", "flask", "sklearn", "yaml", "chalice", "aws_lambda_powertools", *TRAINING_PACKAGES)


@click.group(epilog="Examples:\n\n\b\n  dyntrain local demo\n  dyntrain local up --dashboard")
def local() -> None:
    """Run the embedded cloud: an emulated AWS on this machine."""


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
    "--workers-per-node",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Worker processes of each node, as with one for each GPU.",
)
@click.option(
    "--epochs", type=click.IntRange(1), help="Epochs of the handwritten digits; default: no end until Ctrl-C."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    callback=local_path,
    help="Folder whose files stay after the end; default: a temporary folder.",
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
    help="Wheel of this project, which bare machines install from S3.",
)
@click.option("--dashboard/--no-dashboard", default=False, help="Show the cluster as a page, and print its address.")
@click.option(
    "--dashboard-port", type=click.IntRange(0, 65535), default=0, help="Port of the page; default: a free one."
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let the page scale the group and add, remove and replace nodes. Needs --dashboard.",
)
@click.option("--quiet", is_flag=True, help="Do not print the job's events.")
@click.argument("command", nargs=-1)
def up(**option_values: Any) -> None:
    """Run the cloud with a cluster until Ctrl-C. A COMMAND after -- runs in the current folder, and replaces the
    training on handwritten digits.
    """
    try:
        options = UpOptions(**option_values)
        if options.allow_changes and not options.dashboard:
            raise click.UsageError("--allow-changes needs the page; add --dashboard")
        options.command_and_folder()  # reports a mistake before anything slow
        page_port_option = {"--dashboard-port": options.dashboard_port} if options.dashboard else {}
        check_ports_are_free(
            LOOPBACK_HOST, {"--port": options.port, **page_port_option}
        )  # before the imports, which take seconds
        require(REQUIRED_PACKAGES)
        serve(options)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except EndedBySignal as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(0 if end.number == signal.SIGINT else 128 + end.number) from None


@local.command(epilog="Examples:\n\n\b\n  dyntrain local demo --report demo.json --picture demo.svg")
@click.option(
    "--epochs",
    type=click.IntRange(2),
    default=1000,
    show_default=True,
    help="Epochs of the job, which must last longer than the demo.",
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
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the lines of the demo to this SVG file.",
)
@click.option("--stay", is_flag=True, help="Keep the cluster and its page running until Ctrl-C.")
def demo(epochs: int, report: Path, port: int, picture: Path | None, stay: bool) -> None:
    """Show a job that gains and loses workers while it trains, and write a report."""
    try:
        check_ports_are_free(LOOPBACK_HOST, {"--port": port})
        require(REQUIRED_PACKAGES)
        click.echo("loading the demo")
        from dyntrain.controller.local.demo.story import run_demo

        with raise_on_signals() as signal_waiter:
            exit_code = run_demo(report, epochs, port, picture, signal_waiter.wait if stay else None)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except EndedBySignal as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(128 + end.number) from None
    raise SystemExit(exit_code)


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
    callback=local_path,
    help="Folder whose files stay after the end; default: a temporary folder.",
)
@click.option(
    "--engine",
    type=click.Choice(["pslite", "horovod"]),
    default="pslite",
    show_default=True,
    help="Engine that sums the job's gradients.",
)
@click.option(
    "--namespaces/--no-namespaces",
    default=None,
    help=(
        "Run each machine in a network namespace, and also disturb links and the volume (Linux, root, iproute2); "
        "default: if possible."
    ),
)
def chaos(
    duration: float, seed: int, report: Path, directory: Path | None, engine: str, namespaces: bool | None
) -> None:
    """Hunt for faults: disturb all parts of the system while simulated users change the cluster, then check that the
    cluster reaches the requested state.
    """
    try:
        require(REQUIRED_PACKAGES)
        from dyntrain.controller.local.chaos.hunt import run_chaos
        from dyntrain.controller.local.chaos.volume import enter_mount_namespace
        from dyntrain.controller.local.machines.namespaces import namespaces_available

        use_namespaces = namespaces_available() if namespaces is None else namespaces
        if use_namespaces:
            enter_mount_namespace(sys.argv[1:])
        with raise_on_signals():
            exit_code = run_chaos(duration, seed, report, directory, use_namespaces, engine)
    except LocalCloudError as error:
        raise click.ClickException(str(error)) from error
    except EndedBySignal as end:
        click.echo("stopped; nothing is left running", err=True)
        raise SystemExit(128 + end.number) from None
    raise SystemExit(exit_code)
