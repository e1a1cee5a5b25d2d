"""Name the account and region that a command is about to change."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.adapters.aws import Clients, creating_client

# naming the account must not delay the change
_SINGLE_TRY = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})


def account_and_region(clients: Clients) -> str:
    """Account, region and profile in words, and the endpoint unless it is AWS's own. Raises Misconfigured when no
    region is set.
    """
    session = clients.session
    with creating_client():
        sts: Any = session.create_client("sts", config=_SINGLE_TRY)
    try:
        account = f"account {sts.get_caller_identity()['Account']}"
    except (BotoCoreError, ClientError) as error:
        account = f"account unknown ({type(error).__name__})"
    parts = [account, f"region {sts.meta.region_name}"]
    if profile := session.get_config_variable("profile"):
        parts.append(f"profile {profile}")
    if "amazonaws." not in (url := sts.meta.endpoint_url):
        parts.append(f"at {url}")
    return ", ".join(parts)
