"""`dyntrain generate-trainer`: write scripts that start TensorFlow's parameter servers and workers.

The options are the same as in deeplearning-cfn's program `generate-trainer`.
"""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command(
    "generate-trainer",
    context_settings={"ignore_unknown_options": True},
    epilog="Examples:\n\n\b\n"
    "  dyntrain generate-trainer --workers_file_path $DEEPLEARNING_WORKERS_PATH --worker_count 2 --worker_gpu_count 8 "
    "--trainer_script_dir $EFS_MOUNT --log_dir $EFS_MOUNT/logs --training_script train.py --batch_size 128",
)
@click.option("--workers_file_path", type=click.Path(path_type=Path), required=True, help="One host a line.")
@click.option("--worker_count", type=click.IntRange(min=1), required=True, help="Hosts: the first so many of the file.")
@click.option(
    "--worker_gpu_count", type=click.IntRange(0, 64), required=True, help="Workers of a host; 0: one, on CPU."
)
@click.option(
    "--trainer_script_dir", type=click.Path(path_type=Path), required=True, help="Where HOST.sh is put for each host."
)
@click.option("--training_script", required=True, help="Its own arguments are all those that are not named here.")
@click.option("--log_dir", default="/tmp", show_default=True, help="Where ps0, worker0 and so on write.")  # noqa: S108
@click.option("--python", default="python3", show_default=True, help="On the hosts.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def generate_trainer(  # `dyntrain generate-trainer`
    workers_file_path: Path,
    worker_count: int,
    worker_gpu_count: int,
    trainer_script_dir: Path,
    training_script: str,
    log_dir: str,
    python: str,
    arguments: tuple[str, ...],
) -> None:
    """Write a script HOST.sh for each host, to start a distributed TensorFlow training.

    On the host HOST, `bash HOST.sh` starts a parameter server and one worker for each GPU, and then exits. The number
    of workers cannot change during the training.
    """
    from dyntrain.training.launch.parameter_servers import TrainerError, Training, host_scripts, hosts_of

    try:
        all_hosts = hosts_of(workers_file_path.read_bytes(), workers_file_path.name)
        hosts = all_hosts[:worker_count]
        training = Training(hosts, worker_gpu_count, (python, training_script, *arguments), log_dir)
        for host, script_text in host_scripts(training, all_hosts[worker_count:]).items():
            _replace_file(trainer_script_dir / f"{host}.sh", script_text)
    except TrainerError as error:
        raise click.ClickException(f"{workers_file_path}: {error}") from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if len(all_hosts) != worker_count:
        count_warning = f"{workers_file_path} lists {len(all_hosts)} hosts, --worker_count is {worker_count}"
        click.echo(f"Warning: {count_warning}: the training has {len(hosts)}", err=True)
    for host in hosts:
        click.echo(f'ssh {host} "bash {trainer_script_dir.absolute() / f"{host}.sh"}"')


def _replace_file(path: Path, text: str) -> None:
    """Replace the file atomically, so that a host that reads the file gets either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
    temporary_path.write_text(text)
    temporary_path.rename(path)
