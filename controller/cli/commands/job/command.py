"""`dyntrain job submit` and `resubmit`, and the group of all commands of `dyntrain job`."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from dyntrain.controller.cli.commands.job.looking import job_list, logs, status, stop
from dyntrain.controller.cli.commands.job.template import template
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.words import printable, size_text
from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.adapters.submission import AwsLauncher
    from dyntrain.controller.cli.commands.job.jobs import JobState
    from dyntrain.controller.jobs.ports import JobPorts
    from dyntrain.controller.jobs.submission.ports import Launcher
    from dyntrain.controller.jobs.submission.request import JobRequest


NO_BUCKET_MESSAGE = (
    "give --bucket, or create this region's stack with one: `dyntrain job template > job.yaml` and `aws "
    "cloudformation deploy --stack-name dyntrain-jobs --template-file job.yaml --capabilities CAPABILITY_IAM`"
)


@click.group(
    epilog="Examples:\n\n\b\n  dyntrain job submit mnist --code . --nodes 2 --instance-type g5.xlarge -- "
    "python3 train.py\n  dyntrain job logs mnist -f"
)
def job() -> None:  # `dyntrain job`
    """Run any framework's command on N machines, which are terminated after the command."""


for command in (job_list, status, logs, stop, template):
    job.add_command(command)


@job.command(
    epilog="Examples:\n\n\b\n"
    "  dyntrain job submit mnist --code . --nodes 2 --instance-type g5.xlarge -- python3 train.py\n"
    "  dyntrain job submit mnist --code . --instance-type g5.xlarge --spot --retries 3 --yes -- python3 train.py\n"
    "  dyntrain job submit digits --code . --nodes 2 --instance-type c6i.xlarge --elastic -- python3 train.py\n"
    "\b\nThe command runs in the folder of the code, without root's rights, with NODE_RANK, NUM_NODES, MASTER_ADDR,\n"
    "MASTER_PORT and JOB_ID, and with RESUMED=1 when it runs again. What it leaves below --artifacts is saved every\n"
    "minute and at the end. Bucket, profile and security group are those of the stack of `dyntrain job template`\n"
    "unless others are named."
)
@click.argument("name")
@click.option("--code", required=True, help="Folder, or s3://BUCKET/KEY of a tar archive. .dyntrainignore leaves out.")
@click.option("--nodes", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many machines.")
@click.option("--instance-type", required=True)
@click.option("--image", default="", help="AMI id.  [default: Ubuntu 24.04, on GPUs AWS's with NVIDIA's driver]")
@click.option(
    "--disk",
    type=click.IntRange(8, 16_384),
    help="Root volume in GiB.  [default: what the image needs, and 50; of a cluster 50, on GPUs 150]",
)
@click.option("--profile", default="", help="ARN or name of the instance profile of the machines.")
@click.option("--bucket", default="", help="Where code, artifacts and results are kept, below NAME/.")
@click.option("--placement-group", default="", help="As made by aws ec2 create-placement-group.")
@click.option("--security-group", default="", help="Id; its members must reach each other.")
@click.option("--subnet", default="", help="Id.  [default: one of the default VPC]")
@click.option("--spot", is_flag=True, help="On machines that EC2 may take back.")
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=0,
    help="How often it is launched again after that; the command then stays until the job ends.",
)
@click.option("--max-hours", type=float, default=24.0, show_default=True, help="After which it is ended.")
@click.option("--env", "settings", multiple=True, metavar="K=V", help="For the command; may be given several times.")
@click.option("--requirements", help="For pip, in the code's folder.  [default: requirements.txt if it is there]")
@click.option("--artifacts", default="artifacts", show_default=True, help="Folder in the code's that is kept.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    metavar="NAME=SOURCE",
    help="Data: s3://BUCKET/PREFIX/ or s3://BUCKET/KEY,manifest as FIFOs NAME_0, NAME_1, ..., one an epoch; with "
    ",mode=file a folder. Also ,shuffle=SEED and ,format=.",
)
@click.option(
    "--workers-per-node",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Ranks on each machine, among which a channel is dealt; with --elastic workers, as one for each GPU.",
)
@click.option("--data-root", default="", help="Where channels are.  [default: /opt/ml/input/data]")
@click.option("--wait", is_flag=True, help="Stay until the job ends; the exit code says how.")
@click.option(
    "--elastic",
    is_flag=True,
    help="Make it the cluster NAME of --nodes base nodes, whose workers come and go while it trains.",
)
@click.option(
    "--package",
    default="",
    help="With --elastic: s3://BUCKET/KEY of the wheel that nodes install.  [default: it is in the job's bucket]",
)
@click.option(
    "--key-name", default="", help="With --elastic: key pair for SSH to the master.  [default: the region's only one]"
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def submit(  # `dyntrain job submit`
    context: click.Context,
    /,
    *,
    settings: tuple[str, ...],
    wait: bool,
    elastic: bool,
    package: str,
    key_name: str,
    yes: bool,
    **options: Any,
) -> None:
    """Run COMMAND on --nodes machines as the job NAME."""
    with errors_on_one_line():
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs

        typed_options = [
            name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        if not elastic and (package or key_name):
            raise GiveUp("the options --package and --key-name need the option --elastic")
        ports, launcher = connect_jobs()
        job_request = _request_from_options(launcher, options, settings, elastic=elastic)
        if elastic:
            from dyntrain.controller.cli.commands.job.elastic import submit_elastic_job

            submit_elastic_job(ports, launcher, job_request, typed_options, package, key_name, yes=yes)
            return
        _launch_job(ports, launcher, job_request, yes=yes)
        _wait_for_job(ports, launcher, job_request.name, wait=wait or job_request.retries > 0)


def _request_from_options(
    launcher: AwsLauncher, options: Mapping[str, Any], settings: Sequence[str], *, elastic: bool
) -> JobRequest:
    """The job request that the options of `dyntrain job submit` describe. The stack of `dyntrain job template` gives
    the default bucket and, unless the job is elastic, the default instance profile and security group. Raises GiveUp.
    """
    from dyntrain.controller.adapters.submission import stack_defaults
    from dyntrain.controller.cli.commands.job.data import check_channels
    from dyntrain.controller.contract.command_words import command_words
    from dyntrain.controller.jobs.submission.code import requirements_of
    from dyntrain.controller.jobs.submission.request import DATA_ROOT, JobRequest, environment_of

    for warning in check_channels(options.get("channels", ()), elastic=elastic):
        click.echo(f"Warning: {warning}", err=True)
    stack_outputs = {"bucket": "bucket"}  # name of the stack's output, by option
    if not elastic:
        stack_outputs |= {"profile": "profile", "security_group": "security-group"}
    stack_values = {} if all(options[field] for field in stack_outputs) else stack_defaults(launcher.clients)
    if not options["bucket"] and "bucket" not in stack_values:
        raise GiveUp(NO_BUCKET_MESSAGE)
    resolved_options: dict[str, Any] = {
        field: options[field] or stack_values.get(output_name, "") for field, output_name in stack_outputs.items()
    }
    resolved_options["disk"] = options.get("disk") or 0
    resolved_options["data_root"] = options.get("data_root") or DATA_ROOT
    resolved_options["command"] = command_words(options["command"], _program_checker(options["code"]))
    requirements = "" if elastic else requirements_of(options["code"], options["requirements"])
    return JobRequest(**{**options, **resolved_options, "requirements": requirements, "env": environment_of(settings)})


def _program_checker(code: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name is a program of this machine or a file in the job's code folder."""
    return lambda name: shutil.which(name) is not None or (Path(code) / name).is_file()


def _launch_job(ports: JobPorts, launcher: AwsLauncher, request: JobRequest, *, yes: bool) -> None:
    from dyntrain.controller.jobs.submission.code import pack, source_of
    from dyntrain.controller.jobs.submission.request import check
    from dyntrain.controller.jobs.submission.submit import prepare
    from dyntrain.controller.jobs.submission.submit import submit as submit_job

    check(request)
    packed_code = pack(Path(request.code), artifacts=request.artifacts) if source_of(request.code) is None else None
    with waiting("asking AWS whether this can be done"):
        prepared_job = prepare(ports, launcher, request, packed_code, secrets.token_hex(6))
        hourly_price = launcher.price(request.instance_type, spot=request.spot)
    code_size = (
        f"{packed_code.files} files, {size_text(len(packed_code.content))}" if packed_code is not None else request.code
    )
    say_where(f"job {request.name}", launcher.clients)
    click.echo(_job_description(request, code_size, hourly_price))
    if not yes and not click.confirm("Launch the job?", default=False):
        raise GiveUp("nothing was launched")
    submit_job(ports, launcher, prepared_job, _print_line)


@job.command(epilog="Examples:\n\n\b\n  dyntrain job resubmit mnist\n  dyntrain job resubmit mnist --wait")
@click.argument("name")
@click.option("--wait", is_flag=True, help="Stay until the job ends; the exit code says how.")
def resubmit(name: str, wait: bool) -> None:  # `dyntrain job resubmit`
    """Run an ended job again, with its artifacts restored and the environment variable RESUMED=1."""
    with errors_on_one_line():
        from dyntrain.controller.cli.commands.job.jobs import connect_jobs, store_end
        from dyntrain.controller.jobs.submission.submit import resubmit

        ports, launcher = connect_jobs()
        store_end(ports, launcher, name)
        say_where(f"job {name}", launcher.clients)
        resubmit(ports, launcher, name, _print_line)
        _wait_for_job(ports, launcher, name, wait=wait)


def _job_description(request: JobRequest, size: str, price: float | None) -> str:
    """Describe the machines that the job will launch, with the machines' price."""
    market_text = "Spot " if request.spot else ""
    description_lines = [
        f"job {request.name}: {request.nodes} {market_text}machines of type {request.instance_type}, "
        f"at most {request.max_hours:g} hours each attempt",
        f"  runs        {printable(' '.join(request.command))}",
        f"  code        {size}, into s3://{request.bucket}/{request.name}/",
        *([f"  reads       {printable(', '.join(request.channels))}"] if request.channels else []),
        f"  may         {request.profile or 'do nothing in AWS: without --profile it can fetch no code'}",
    ]
    if price is not None:
        hourly_cost = price * request.nodes
        max_cost = hourly_cost * request.max_hours * (1 + request.retries)
        description_lines.append(
            f"  costs       {hourly_cost:.2f} dollars an hour, at most {max_cost:.2f}; disks and traffic besides"
        )
    return "\n".join(description_lines)


def _print_line(text: str) -> None:
    click.echo(printable(text))


def _wait_for_job(ports: JobPorts, launcher: Launcher, name: str, *, wait: bool) -> None:
    """Wait until all nodes of the job run, or until the job ends if `wait` is true. If `wait` is true, an interrupted
    job is launched again, at most as often as the job's option --retries allows.
    """
    from dyntrain.controller.cli.commands.job.jobs import poll_job, relaunch
    from dyntrain.controller.jobs.record import ENDED

    while True:
        job_state = poll_job(ports, launcher, name, _print_progress, ENDED if wait else (*ENDED, "RUNNING"), time.sleep)
        job_record = job_state.record
        if not (wait and job_state.phase == "INTERRUPTED" and job_record.attempt <= job_record.retries):
            break
        click.echo(f"attempt {job_record.attempt} was interrupted; it is launched again")
        relaunch(ports, launcher, name, _print_line)
    if job_state.verdict is not None and job_state.verdict.tail:
        click.echo(f"the last lines of rank {job_state.verdict.rank}:")
        for line in job_state.verdict.tail.splitlines():
            click.echo(f"  {printable(line)}")
    if job_state.phase not in ("RUNNING", "SUCCEEDED"):
        raise click.exceptions.Exit(1)


def _print_progress(job: JobState) -> None:
    reason_text = f": {printable(job.reason)}" if job.reason else ""
    nodes_text = f" {job.heard}/{job.record.nodes}" if job.phase == "STARTING" else ""
    click.echo(f"{job.phase}{nodes_text}{reason_text}")
