"""An account on moto, and the command line in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from subprocess import PIPE

import boto3
import pytest
import yaml
from click.testing import CliRunner
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.cli.main import main
from moto_account import KEYS, RESOURCES, TABLE, Run
from moto_server import moto_server
from surroundings import DYNALITE


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server("autoscaling", "dynamodb", "ec2", "logs", "ssm", "sts") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def dynalite() -> Iterator[str]:
    """Ends with its standard input, so with this process too."""
    program = (
        f"require({json.dumps(str(DYNALITE.parent))})({{createTableMs: 100, deleteTableMs: 100}})"
        ".listen(0, '127.0.0.1', function () { console.log(this.address().port) });"
        "process.stdin.on('end', () => process.exit()).resume()"
    )
    with subprocess.Popen(["node", "-e", program], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@pytest.fixture
def clients(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """In a region of its own: all moto servers of a process share their accounts."""
    variables = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_ENDPOINT_URL": endpoint,
        "DYNTRAIN_TABLE": TABLE,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()
    clients = Clients(endpoint, attempts=1)
    properties = yaml.safe_load(RESOURCES.read_text())["Resources"]["FactsTable"]["Properties"]
    clients.dynamodb().create_table(TableName=TABLE, **{key: properties[key] for key in KEYS})
    yield clients
    clients.dynamodb().delete_table(TableName=TABLE)
    for entry in clients.ssm().describe_parameters()["Parameters"]:
        clients.ssm().delete_parameter(Name=entry["Name"])


@pytest.fixture
def run(clients: Clients) -> Run:
    return lambda *arguments: CliRunner().invoke(main, arguments)
