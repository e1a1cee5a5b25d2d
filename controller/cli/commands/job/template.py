"""`dyntrain job template`: print the CloudFormation template of the stack that jobs use."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain job template > job.yaml\n"
    "\b\nand then: aws cloudformation deploy --stack-name dyntrain-jobs --template-file job.yaml "
    "--capabilities CAPABILITY_IAM"
)
def template() -> None:  # `dyntrain job template`
    """Print the CloudFormation template of a bucket, a role and a security group, which jobs use by default."""
    template_text = files("dyntrain.node_bootstrap").joinpath("job.template.yaml").read_text(encoding="utf-8")
    click.echo(template_text, nl=False)
