"""How a process on a host reaches AWS: with credentials from wherever boto3 finds them, on EC2 the instance's role."""

from __future__ import annotations

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

SETTINGS = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})


def session(region: str | None = None) -> boto3.session.Session:
    """Raises NoCredentialsError. A client that was made while the metadata service did not answer would never have any,
    so none is.
    """
    made = boto3.session.Session(region_name=region)
    if made.get_credentials() is None:
        raise NoCredentialsError
    return made
