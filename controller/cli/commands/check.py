"""`dyntrain check`: compare a script's training in a single process with its training on changing workers."""

from __future__ import annotations

import sys

import click
from dyntrain.missing import TRAINING_PACKAGES, require


@click.command(
    "check",
    context_settings={"allow_interspersed_args": False},  # options after the first argument belong to the script
    epilog="Examples:\n\n\b\n  dyntrain check -- python train.py --batch-size 64\n"
    "  dyntrain check --steps 20 --plan '3=3 6=kill1 9=2' -- python train.py\n"
    "  dyntrain check --json -- python train.py > verdict.json\n"
    "  dyntrain check --explain DT301\n\n\b\n"
    "Exit codes: 0 it trains the same, 1 it does not, 2 the runs cannot be compared.",
)
@click.option("--steps", type=click.IntRange(1), default=12, show_default=True, help="Of each loop over epochs.")
@click.option("--epochs", type=click.IntRange(1), help="Of each loop, at most.  [default: what the steps are of]")
@click.option("--samples", type=click.IntRange(1), help="Of an epoch, at most.  [default: five batches]")
@click.option("--plan", help="Of joins, leaves and kills, as '3=3 6=kill1 9=2'.  [default: by --seed]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the plan and of the rounding.")
@click.option("--seconds", type=click.FloatRange(1), default=600.0, show_default=True, help="For a run, at most.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as a JSON object.")
@click.option("--explain", metavar="[CODE]", is_flag=False, flag_value="", help="What a rule means; alone: all rules.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def check(  # `dyntrain check`
    steps: int,
    epochs: int | None,
    samples: int | None,
    plan: str | None,
    seed: int,
    seconds: float,
    as_json: bool,
    explain: str | None,
    command: tuple[str, ...],
) -> None:
    """Check whether a script trains the same on workers that join and leave as in a single process.

    A few steps of the unchanged script run three times on this machine's CPUs. In the first run, the script trains in a
    single process. In the second run, the script trains in a single process with weights that differ by a rounding
    error. In the third run, workers join, leave and are killed. The check rents no machine. The script writes its files
    as usual, and dyntrain's own files are in a temporary folder.
    """
    if explain is not None:
        from dyntrain.training.checks.explain import explain as page_of

        try:
            click.echo(page_of(explain or None))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return
    if not command:
        raise click.UsageError("no training command: put it after --, as in: dyntrain check -- python train.py")
    require(TRAINING_PACKAGES)
    from dyntrain.training.trial.course import run_experiment
    from dyntrain.training.trial.experiment import Options
    from dyntrain.training.trial.plan import parse

    try:
        experiment_options = Options(
            command, steps, epochs, samples, None if plan is None else parse(plan), seed, seconds
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    sys.exit(run_experiment(experiment_options, as_json))
