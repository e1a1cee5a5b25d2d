"""An account on moto for one test or module."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from dyntrain.controller.local.pace import patient
from moto.server import ThreadedMotoServer

_READS = {
    "autoscaling": "describe_auto_scaling_groups",
    "cloudformation": "list_stacks",
    "dynamodb": "list_tables",
    "ec2": "describe_instances",
    "logs": "describe_log_groups",
    "s3": "list_buckets",
    "ssm": "describe_parameters",
    "sts": "get_caller_identity",
}


@contextmanager
def moto_server(*services: str) -> Iterator[str]:
    """The endpoint of an account with nothing in it. All moto servers of a process have the same account, in which
    tests of other files may have left what this one wants to make.

    `services` are loaded: moto does so with the first call, for longer than a command waits where the machine is busy.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
        session, config = boto3.Session("x", "x", region_name="us-east-1"), Config(read_timeout=patient(60))
        for service in services:
            client: Any = session.client(service, endpoint_url=endpoint, config=config)  # type: ignore[call-overload]
            getattr(client, _READS[service])()
        yield endpoint
    finally:
        server.stop()


def any_image(ec2: Any) -> str:
    """One of moto's; to list all of them takes it many seconds."""
    answer = ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm-2*"]}])
    return str(answer["Images"][0]["ImageId"])
