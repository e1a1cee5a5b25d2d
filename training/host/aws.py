"""Opens a boto3 session with the credentials that boto3 finds: on EC2, those of the instance's role."""

from __future__ import annotations

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

SETTINGS = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})


def session(region: str | None = None) -> boto3.session.Session:
    """Make a session.

    Raises NoCredentialsError if boto3 finds no credentials, as a client without credentials never gets any later.
    """
    aws_session = boto3.session.Session(region_name=region)
    if aws_session.get_credentials() is None:
        raise NoCredentialsError
    return aws_session
