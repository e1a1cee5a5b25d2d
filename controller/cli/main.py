"""The entry point of `dyntrain`. The module of a command is imported only when the command is used, so that a
command works without the packages that only other commands need.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem
from dyntrain.controller.cli.shell.aws_settings import aws_settings, changed_environment
from dyntrain.missing import exit_with_advice


@dataclass(frozen=True)
class LazyCommand:
    """A command whose module is imported only when the command is used. The list of all commands is shown without an
    import of any command's module.
    """

    location: str  # MODULE:NAME of the click command
    help: str  # the short help in the list of all commands

    def load(self) -> click.Command:
        module, _, attribute = self.location.partition(":")
        command: click.Command = getattr(import_module(f"dyntrain.controller.{module}"), attribute)
        return command


COMMANDS = {
    "add": LazyCommand(
        "cli.commands.changes:add", "Add workers to a cluster: its group launches machines, or running ones are tagged."
    ),
    "base": LazyCommand(
        "cli.commands.base_nodes:base", "Replace base nodes, which run the coordinator and the ps-lite servers."
    ),
    "check": LazyCommand(
        "cli.commands.check:check", "Compare a script's training in one process and on changing workers."
    ),
    "cluster": LazyCommand("cli.commands.clusters:cluster", "Register clusters, show their policies, delete clusters."),
    "cost": LazyCommand("cli.commands.cost:cost", "Print instance-hours and costs of clusters and jobs."),
    "dashboard": LazyCommand("dashboard.command:dashboard", "Show clusters and jobs on a web page of this machine."),
    "doctor": LazyCommand(
        "cli.commands.doctor:doctor", "Find faults of the controller and the clusters, with remedies."
    ),
    "events": LazyCommand(
        "cli.commands.events:events", "Print the audit trail: every change of status and every action."
    ),
    "explain": LazyCommand("cli.commands.state:explain", "Explain an instance's status, with all stored facts."),
    "generate-trainer": LazyCommand(
        "cli.commands.generate_trainer:generate_trainer", "Write scripts that start a distributed TensorFlow training."
    ),
    "job": LazyCommand(
        "cli.commands.job.command:job", "Run any framework's command on machines that end with the command."
    ),
    "index": LazyCommand("cli.commands.index:index", "Write the index files that channels need for RecordIO files."),
    "launch": LazyCommand("cli.commands.launch:launch", "Train on hosts that you name, without a cloud."),
    "local": LazyCommand("local.command:local", "Run the embedded cloud: AWS's services on this machine, for trials."),
    "logs": LazyCommand("cli.commands.logs:logs", "Print log lines of the workers, also of terminated machines."),
    "model": LazyCommand("cli.commands.model:model", "Predict the times of steps, changes and crashes."),
    "pool": LazyCommand("cli.commands.pool:pool", "Show how idle reserved instances are given to clusters."),
    "remove": LazyCommand("cli.commands.changes:remove", "Ask workers to leave their job."),
    "replay": LazyCommand(
        "cli.commands.replay:replay", "Replay recorded EventBridge events through the controller, in memory."
    ),
    "report": LazyCommand(
        "cli.commands.report:report", "Describe a job by curves, changes and pauses, as text or as a page."
    ),
    "scale": LazyCommand("cli.commands.changes:scale", "Set the number of elastic workers in a cluster's group."),
    "status": LazyCommand("cli.commands.state:status", "Show the nodes and the job of each cluster."),
    "tensorboard": LazyCommand("cli.commands.tensorboard:tensorboard", "Show a job's curves in TensorBoard."),
}


class Commands(click.Group):  # of `dyntrain`
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS[cmd_name].load() if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by its name as click does, and suggest a similar name for an unknown command."""
        similar_names = get_close_matches(args[0], COMMANDS, n=1)
        if similar_names and args[0] not in COMMANDS:
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{similar_names[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        matching_commands = [
            CompletionItem(name, help=COMMANDS[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return matching_commands + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        with exit_with_advice():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  dyntrain status --watch\n  dyntrain --region eu-west-1 --profile work scale demo 4\n"
    "  dyntrain dashboard",
)
@click.version_option(package_name="dyntrain", message="dyntrain %(version)s")
@click.option("--stage", help="Which deployed controller; also DYNTRAIN_STAGE. Default: the only one there is.")
@click.option("--region", help="Of AWS; also AWS_REGION or AWS_DEFAULT_REGION, or the profile's.")
@click.option("--profile", help="Of the AWS configuration; also AWS_PROFILE.")
@click.pass_context
def main(ctx: click.Context, stage: str | None, region: str | None, profile: str | None) -> None:
    """Control elastic training on EC2, and show the state of clusters and jobs."""
    ctx.with_resource(changed_environment(os.environ, aws_settings(os.environ, region, profile)))


if __name__ == "__main__":
    main()
