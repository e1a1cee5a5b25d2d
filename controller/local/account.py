"""The AWS account of one embedded cloud (an emulation of AWS), and the lock that protects the account.

The library moto, which emulates AWS's APIs, keeps the state of each account in global variables of the process. Each
embedded cloud has an account number of its own, so that embedded clouds in one process share no state. Many threads
call moto, and moto changes plain dicts. Therefore API calls, except calls to SQS, S3 and CloudWatch Logs, must hold the
account's lock. Every change of moto's objects by the embedded cloud must also hold the account's lock.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.sqs.models import sqs_backends

_account_numbers = itertools.count(int(DEFAULT_ACCOUNT_ID) + 1)  # other uses of moto have the default number


class Account:
    def __init__(self, region: str) -> None:
        self.number = str(next(_account_numbers))
        self.region = region
        self.lock = threading.RLock()

    @property
    def ec2(self) -> Any:
        return ec2_backends[self.number][self.region]

    @property
    def autoscaling(self) -> Any:
        return autoscaling_backends[self.number][self.region]

    @property
    def cloudformation(self) -> Any:
        return cloudformation_backends[self.number][self.region]

    @property
    def dynamodb(self) -> Any:
        return dynamodb_backends[self.number][self.region]

    @property
    def iam(self) -> Any:
        return iam_backends[self.number]["aws"]

    @property
    def sqs(self) -> Any:
        return sqs_backends[self.number][self.region]

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.number}:{resource}"

    def instance_arn(self, instance_id: str) -> str:
        return self.arn("ec2", f"instance/{instance_id}")

    def instance_tags(self, instance_id: str) -> dict[str, str]:
        """A copy of the instance's current tags; empty if the instance does not exist."""
        with self.lock:
            return dict(self.ec2.tags.get(instance_id, {}))
