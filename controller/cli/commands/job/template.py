"""`dyntrain job template`: the stack that gives jobs what they need."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain job template > job.yaml\n"
    "\b\nand then: aws cloudformation deploy --stack-name dyntrain-jobs --template-file job.yaml "
    "--capabilities CAPABILITY_IAM"
)
def template() -> None:
    """CloudFormation's text for a bucket, a role and a security group that jobs use when no others are named."""
    text = files("dyntrain.node_bootstrap").joinpath("job.template.yaml").read_text(encoding="utf-8")
    click.echo(text, nl=False)
