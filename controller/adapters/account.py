"""Describe in one phrase the AWS account and region in which a command is about to make changes."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.adapters.aws import Clients, creating_client

# naming the account must not delay the change
_SINGLE_ATTEMPT_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})


def account_and_region(clients: Clients) -> str:
    """A phrase that names the AWS account, the region and the profile, if one is set. The phrase also names the
    endpoint URL if the endpoint is not AWS's own. Raises Misconfigured when no AWS region is set.
    """
    botocore_session = clients.session
    with creating_client():
        sts: Any = botocore_session.create_client("sts", config=_SINGLE_ATTEMPT_CONFIG)
    try:
        account_phrase = f"account {sts.get_caller_identity()['Account']}"
    except (BotoCoreError, ClientError) as error:
        account_phrase = f"account unknown ({type(error).__name__})"
    phrases = [account_phrase, f"region {sts.meta.region_name}"]
    if profile_name := botocore_session.get_config_variable("profile"):
        phrases.append(f"profile {profile_name}")
    if "amazonaws." not in (endpoint_url := sts.meta.endpoint_url):
        phrases.append(f"at {endpoint_url}")
    return ", ".join(phrases)
