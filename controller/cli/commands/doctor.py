"""`dyntrain doctor`: find faults of a deployed controller and its clusters, and print their remedies."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.options import cluster_argument, output_options, width_of_terminal
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.tables import Column, table
from dyntrain.controller.cli.text.words import printable

VERDICT_SIGNS = {"ok": "ok", "wrong": "WRONG", "unknown": "?"}
COLUMNS = (Column("", 0), Column("what", 0), Column("verdict", 0, words=True))


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain doctor\n  dyntrain doctor --cluster demo --json\n  dyntrain doctor --offline"
)
@cluster_argument
@click.option("--offline", is_flag=True, help="What is believed of AWS, and who vouches for it; asks nobody.")
@output_options("one object a line", "what is too long goes on below", "each on one line, however long")
def doctor(cluster: str | None, offline: bool, output: str) -> None:  # `dyntrain doctor`
    """Check credentials, stage, stacks, parameters, groups, hooks, rights, image and wheel; print remedies.

    The command changes nothing in AWS, and starts no new reading after half a minute. The exit code is 1 if a fault was
    found. A check gets the verdict "?" if AWS denies you a reading that the check needs.
    """
    if offline:
        from dyntrain.controller.cli.doctor.claims import claims

        for claim in claims():
            claim_fields = {"claim": claim.claim, "witness": claim.evidence}
            click.echo(json.dumps(claim_fields) if output == "json" else f"{claim.claim}\n    {claim.evidence}")
        return
    with errors_on_one_line():
        from dyntrain.controller.cli.doctor.checks import diagnosis
        from dyntrain.controller.cli.doctor.reading import Reader
        from dyntrain.controller.contract.settings import Settings

        stage_name = click.get_current_context().find_root().params.get("stage")
        with waiting("looking") as show_progress:
            findings = diagnosis(Reader(stage_name or Settings.of(os.environ).stage, doing=show_progress).read(cluster))
    if output == "json":
        output_lines = [json.dumps(asdict(finding)) for finding in findings]
    else:
        rows = [
            [VERDICT_SIGNS[finding.verdict], printable(finding.what), printable(finding.says)] for finding in findings
        ]
        output_lines = table(COLUMNS, rows, None if output == "wide" else width_of_terminal())
    for line in output_lines:
        click.echo(line)
    if any(finding.verdict == "wrong" for finding in findings):
        raise click.exceptions.Exit(1)
