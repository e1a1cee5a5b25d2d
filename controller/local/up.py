"""Run `dyntrain local up`: the embedded cloud (an emulation of AWS) with a cluster, whose events are printed until
Ctrl-C.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.local.guide import guide_text
from dyntrain.controller.local.own_command import PYTHON, bare_machine_command, check_command, current_folder
from dyntrain.controller.local.signals import EndedBySignal, raise_on_signals
from dyntrain.training.protocol.slots import node_of, slot_of

if TYPE_CHECKING:
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.signals import SignalWaiter
    from dyntrain.controller.local.stack import Cluster

BARE_FOLDER = Path("build/bare")  # for the root file systems of bare machines
BARE_STOP_SECONDS = 90.0  # systemd's own limit for a unit that does not stop
EPOCH_SECONDS = 5.0  # least time between two epoch lines, so that the guide stays visible
OBSERVE_SECONDS = 0.5  # between two observations of the cluster
WORKER_LOG = "var/log/dyntrain/worker.log"


@dataclass(frozen=True)
class UpOptions:
    """The options of `dyntrain local up`. The fields have the names that click gives to the options."""

    port: int  # of the emulated AWS API
    name: str  # of the cluster
    base_workers: int  # number of base nodes besides the master
    epochs: int | None  # None: no end until Ctrl-C
    directory: Path | None  # folder whose files stay after the end
    resync_seconds: float  # period of the controller's resync
    namespaces: bool  # whether each machine has a network namespace of its own
    machines: str  # plain or bare
    wheel: Path | None  # this project's wheel, which bare machines install
    dashboard: bool  # whether to show the cluster as a page
    dashboard_port: int
    allow_changes: bool  # whether the page may change the cluster
    quiet: bool  # whether not to print the job's events
    command: tuple[str, ...]  # the user's own training command
    workers_per_node: int = 1  # worker processes on each node

    def command_and_folder(self) -> tuple[tuple[str, ...], Path | None]:
        """The user's command in the form that machines run, and the folder in which the command runs. If the folder is
        None, the machines run the command in the shared volume. Raises CommandNotFound.
        """
        if not self.command:
            return (), None
        if self.machines == "bare":
            volume = None if self.directory is None else self.directory.absolute() / "shared"
            return bare_machine_command(self.command, volume), None
        folder = current_folder()
        search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        check_command(self.command, folder, search_path)
        return self.command, folder


def serve(chosen: UpOptions) -> None:
    """Run the cloud until Ctrl-C or another signal, which raises EndedBySignal. Raises LocalCloudError if the cloud
    cannot start.
    """
    user_command, folder = chosen.command_and_folder()
    if chosen.machines == "bare":
        _serve_bare_machines(chosen, user_command)
        return
    _print_progress("starting the embedded cloud")
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.options import Options
    from dyntrain.controller.local.stack import create_jobs_stack, create_stack, digits_command, write_prepare_script

    options, resync_seconds = Options(namespaces=chosen.namespaces), chosen.resync_seconds
    with (
        raise_on_signals() as signal_waiter,
        Cloud(port=chosen.port, state_dir=chosen.directory, resync_seconds=resync_seconds, options=options) as cloud,
    ):
        _print_progress(f"the cloud listens at {cloud.endpoint}; creating the cluster {chosen.name}")
        write_prepare_script(cloud.state_dir / "shared")
        command = user_command or digits_command(chosen.epochs or 0)
        parameters = {"WorkerCount": str(chosen.base_workers)} | template_parameters(folder, chosen.workers_per_node)
        cluster = create_stack(cloud, chosen.name, command, parameters, {"resync_seconds": resync_seconds})
        create_jobs_stack(cloud)
        print_events_until_ended(chosen, cloud, cluster, signal_waiter)


def _serve_bare_machines(chosen: UpOptions, user_command: tuple[str, ...]) -> None:
    from dyntrain.controller.local.cloud.embedded import Cloud
    from dyntrain.controller.local.machines.bare import image
    from dyntrain.controller.local.options import Options
    from dyntrain.controller.local.stack import create_stack, digits_command, fill_volume, template_text

    if chosen.wheel is None:
        raise click.UsageError("--machines bare needs --wheel: this project's wheel, as `uv build --wheel` makes it")
    _print_progress("making the image of a bare system, which takes a minute the first time")
    root = image.build_root(BARE_FOLDER, template_text())
    options = Options(namespaces=True, bare=root, machine_stop=BARE_STOP_SECONDS)
    with (
        raise_on_signals() as signal_waiter,
        Cloud(
            port=chosen.port, state_dir=chosen.directory, resync_seconds=chosen.resync_seconds, options=options
        ) as cloud,
    ):
        _print_progress(f"the cloud listens at {cloud.endpoint}; creating the stack {chosen.name}")
        fill_volume(cloud.state_dir / "shared")
        command = user_command or digits_command(chosen.epochs or 0, python=PYTHON)
        parameters = {"WorkerCount": str(chosen.base_workers), "ImageType": "Ubuntu"} | template_parameters(
            None, chosen.workers_per_node
        )
        cluster = create_stack(cloud, chosen.name, command, parameters, wheel=chosen.wheel)
        print_events_until_ended(chosen, cloud, cluster, signal_waiter)


def template_parameters(folder: Path | None, workers_per_node: int = 1) -> dict[str, str]:
    """Parameters of the cluster's template for a command that runs in `folder`, with `workers_per_node` processes on
    each node.
    """
    # moto would take ${...} for a reference of the template
    folder_field = {} if folder is None else {"working_directory": json.dumps(str(folder)).replace("$", "\\u0024")}
    workers_field = {} if workers_per_node == 1 else {"workers_per_node": str(workers_per_node)}
    node_fields = ", ".join(f'"{name}": {value}' for name, value in {**folder_field, **workers_field}.items())
    return {"NodeFields": node_fields} if node_fields else {}


def print_events_until_ended(chosen: UpOptions, cloud: Cloud, cluster: Cluster, signal_waiter: SignalWaiter) -> None:
    """Print the guide, then the job's events, until a signal raises EndedBySignal."""
    with ExitStack() as exit_stack:
        if chosen.dashboard:
            from dyntrain.controller.local.viewer import run_dashboard

            _print_progress("starting the dashboard")
            dashboard_context = run_dashboard(
                cloud.environment, cloud.state_dir, chosen.dashboard_port, allow_changes=chosen.allow_changes
            )
            address = exit_stack.enter_context(dashboard_context)
            click.echo(f"Dashboard: {address}#/cluster/{cluster.name}\n")
        click.echo(guide_text(cloud, cluster, _job_description(chosen)))
        if not chosen.quiet:
            exit_stack.callback(_print_events(cloud, cluster))
        try:
            signal_waiter.wait()
        except EndedBySignal:
            _print_progress("stopping")
            raise


def _job_description(chosen: UpOptions) -> str:
    if not chosen.command:
        return "LeNet on handwritten digits"
    folder = "the shared volume" if chosen.machines == "bare" else Path.cwd()
    return f"{shlex.join(chosen.command)}, in {folder}"


def _print_events(cloud: Cloud, cluster: Cluster) -> Callable[[], None]:
    """Start to print the events of the cluster and the job below the guide, as the demo does. Returns a function that
    stops the printing.
    """
    from dyntrain.controller.local.demo.display import PlainDisplay
    from dyntrain.controller.local.demo.narration import Narrator
    from dyntrain.controller.local.demo.observer import Observer

    click.echo(f"\nEvents of the cluster and its job (of quick epochs, one in {EPOCH_SECONDS:.0f} s):\n")
    display = PlainDisplay()
    observer = Observer(
        cloud.client("ec2"), cluster.name, cloud.state_dir / "shared", display.show_line, poll_seconds=OBSERVE_SECONDS
    )
    hint = f"`dyntrain cluster restart {cluster.name}` begins the job again"
    observer.on_event = Narrator(
        display, lambda instance: worker_log_of(cloud.state_dir, instance), hint, EPOCH_SECONDS
    ).show_event
    observer.start()
    return observer.stop_at_once


def worker_log_of(state_dir: Path, instance: str) -> Path | None:
    """The log file of the worker on an instance or in a slot of an instance, or None if no log file exists."""
    machine_folder, slot = state_dir / "machines" / node_of(instance), slot_of(instance)
    log_path = WORKER_LOG.replace(".log", f"-{slot}.log") if slot else WORKER_LOG
    plain_log, bare_log = machine_folder / log_path, machine_folder / "disk" / "upper" / log_path
    return next((candidate for candidate in (plain_log, bare_log) if instance and candidate.exists()), None)


def _print_progress(activity: str) -> None:
    """Print on stderr that a slow activity begins."""
    click.echo(f"{activity} ...", err=True)
