"""Profiles as people have them: credentials that come from a role, a web identity or a single sign-on."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.credentials
import botocore.tokens
import pytest
from dyntrain.controller.adapters.aws import CREDENTIAL_SERVICES, SERVICES, Clients, translated_errors
from dyntrain.controller.cli.shell.aws_settings import aws_settings, changed_environment
from dyntrain.controller.local.pace import patient
from moto_server import moto_server

ROLE = "arn:aws:iam::123456789012:role/operator"
START = "https://example.awsapps.com/start"
CONFIG = f"""
[profile keys]
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = secret
[profile role]
role_arn = {ROLE}
source_profile = keys
[profile web]
role_arn = {ROLE}
web_identity_token_file = %s
[profile program]
credential_process = /bin/sh %s
[profile signed-on]
sso_session = home
sso_account_id = 123456789012
sso_role_name = operator
[sso-session home]
sso_region = eu-west-1
sso_start_url = {START}
"""

SIGNED_ON = """
import io, json, os
os.environ["AWS_PROFILE"] = "signed-on"
from botocore.awsrequest import AWSResponse
from dyntrain.controller.adapters.aws import Clients, translated_errors
from dyntrain.controller.contract.errors import Misconfigured
class Body(io.BytesIO):
    def stream(self):
        yield self.read()
def answer(request, **_):
    assert request.headers["x-amz-sso_bearer_token"] in ("t", b"t")
    keys = {"accessKeyId": "ASIA", "secretAccessKey": "s", "sessionToken": "t", "expiration": 4102444800000}
    return AWSResponse(request.url, 200, {}, Body(json.dumps({"roleCredentials": keys}).encode()))
clients = Clients(attempts=1)
clients.session.register("before-send.sso.GetRoleCredentials", answer)
try:
    with translated_errors("reading"):
        clients.ssm().describe_parameters()
    print(clients.session.get_credentials().method)
except Misconfigured as error:
    print("Misconfigured:", str(error).rpartition("; ")[2])
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's home with profiles, against moto."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    token = tmp_path / "token"
    token.write_text("a web identity")
    program = tmp_path / "credentials"
    program.write_text("""echo '{"Version": 1, "AccessKeyId": "AKIAIOSFODNN7EXAMPLE", "SecretAccessKey": "s"}'\n""")
    (tmp_path / "config").write_text(CONFIG % (token, program))
    for name, value in {
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    with moto_server("ssm", "sts") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield tmp_path


def read(profile: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_PROFILE", profile)
    clients = Clients(attempts=1)
    with translated_errors("reading"):
        clients.ssm().describe_parameters()
    credentials = clients.session.get_credentials()
    assert credentials is not None
    return str(credentials.method)


@pytest.mark.parametrize(
    ("profile", "method"),
    [("role", "assume-role"), ("web", "assume-role-with-web-identity"), ("program", "custom-process")],
)
def test_a_profile_with_a_role_or_a_program_reaches_aws(
    home: Path, monkeypatch: pytest.MonkeyPatch, profile: str, method: str
) -> None:
    assert read(profile, monkeypatch) == method


def test_a_profile_with_a_single_sign_on_gets_its_roles_credentials_or_says_that_the_login_has_run_out(
    home: Path,
) -> None:
    """moto has no GetRoleCredentials, so the program answers it itself. A process of its own: botocore looks for the
    home when it is imported.
    """
    before = subprocess.run(
        [sys.executable, "-c", SIGNED_ON], capture_output=True, text=True, timeout=patient(60), check=False
    )
    cache = home / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    until = datetime.now(UTC) + timedelta(hours=1)
    token = {"accessToken": "t", "startUrl": START, "region": "eu-west-1", "expiresAt": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
    (cache / f"{hashlib.sha1(b'home').hexdigest()}.json").write_text(json.dumps(token))  # noqa: S324  # its name
    after = subprocess.run(
        [sys.executable, "-c", SIGNED_ON], capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert before.stdout.splitlines()[-1:] == ["Misconfigured: run aws sso login"], before.stderr
    assert after.stdout.splitlines()[-1:] == ["sso"], after.stderr


def test_all_services_by_which_botocore_gets_credentials_are_known() -> None:
    """From its source, so that a release that takes another one is noticed here, not by people who log in with it."""
    source = inspect.getsource(botocore.credentials) + inspect.getsource(botocore.tokens)
    services = set(re.findall(r"(?:_client_creator|create_client)\(\s*['\"]([a-z0-9-]+)['\"]", source))
    assert {"sts", "sso"} <= services
    assert services <= {*CREDENTIAL_SERVICES, *SERVICES}


ACCOUNTS = """
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = s
[profile private]
aws_access_key_id = AKIAPRIVATE
aws_secret_access_key = s
[profile work]
aws_access_key_id = AKIAWORK
aws_secret_access_key = s
"""


@pytest.mark.parametrize("option", [None, "private"])
@pytest.mark.parametrize("default", [None, "", "work"])
@pytest.mark.parametrize("named", [None, "", "work"])
def test_a_profile_that_is_typed_beats_every_variable_and_an_empty_variable_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str | None, default: str | None, named: str | None
) -> None:
    """Else a worker is launched in another account's cluster, with exit code 0."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(ACCOUNTS)
    variables = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_DEFAULT_PROFILE": default, "AWS_PROFILE": named}
    for name, value in variables.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    expected = "AKIAPRIVATE" if option else "AKIAWORK" if "work" in (default, named) else "AKIADEFAULT"
    with changed_environment(os.environ, aws_settings(os.environ, "eu-west-1", option)):
        credentials = Clients(attempts=1).session.get_credentials()
    assert credentials is not None
    assert credentials.access_key == expected
    assert os.environ.get("AWS_DEFAULT_PROFILE") == default
