"""Create AWS clients on first use, and translate AWS's errors into the controller's errors.

The library botocore retries throttled calls in its adaptive retry mode. A call that fails despite botocore's retries
raises RetryLater.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidConfigError,
    LoginError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError
from botocore.session import Session
from dyntrain.controller.contract.errors import Misconfigured, Refused, RetryLater

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

_TRANSIENT_ERROR_CODES = {
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "ResourceContention",
    "ResourceContentionFault",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TooManyUpdates",
    "TransactionInProgressException",
    "Unavailable",
}


# Error codes for missing capacity. EC2 sends some of these codes with HTTP status 500, although a retry does not help.
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
NO_CAPACITY_CODES = (
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "Unsupported",
    "VcpuLimitExceeded",
)
SERVICES = ("autoscaling", "cloudformation", "dynamodb", "ec2", "logs", "pricing", "s3", "ssm")
# services whose clients botocore creates itself, for profiles with a role or a login
CREDENTIAL_SERVICES = ("signin", "sso", "sso-oidc", "sts")


class _ServiceModels(Loader):
    """A botocore loader that opens the model (API description) of an AWS service without searching for the model. For
    each client, botocore's own loader searches the folders of all AWS services twice.
    """

    def list_available_services(self, type_name: str) -> list[str]:
        return [*SERVICES, *CREDENTIAL_SERVICES]


class Clients:
    """The AWS clients that share one configuration (endpoint, retries and timeouts). If `endpoint` is None, requests go
    to the URL in the environment variable AWS_ENDPOINT_URL or, without this variable, to AWS's own endpoints. Creating
    an AWS client may raise Misconfigured.

    `session` is a botocore session that no other code uses. The library boto3 is not used, because boto3 would load its
    code for S3 transfers before the first event is handled.
    """

    def __init__(self, endpoint: str | None = None, attempts: int = 6) -> None:
        self._endpoint = endpoint
        self._config = Config(
            retries={"mode": "adaptive", "total_max_attempts": attempts}, connect_timeout=3, read_timeout=15
        )
        self.session = Session()
        self.session.register_component("data_loader", _ServiceModels())
        self._until = ContextVar[float | None]("until", default=None)

    @cache  # noqa: B019 - the one Clients object lives as long as the process
    def ec2(self) -> EC2Client:
        client: EC2Client = self._client("ec2")
        client.meta.events.register("before-send.ec2", self._check_deadline)
        return client

    @contextmanager
    def requests_until(self, until: float | None) -> Iterator[None]:
        """A context manager in which EC2 requests after the time `until` raise RetryLater and are neither sent nor
        repeated.
        """
        reset_token = self._until.set(until)
        try:
            yield
        finally:
            self._until.reset(reset_token)

    def _check_deadline(self, **_request: Any) -> None:
        """Raise RetryLater if the deadline for EC2 requests has passed. This method is called by botocore before each
        attempt to send an EC2 request.
        """
        deadline = self._until.get()
        if deadline is not None and time.time() > deadline:
            raise RetryLater(
                "this run took too long, and another run may have replaced it: no more requests are sent to EC2"
            )

    @cache  # noqa: B019
    def autoscaling(self) -> AutoScalingClient:
        client: AutoScalingClient = self._client("autoscaling")
        return client

    @cache  # noqa: B019
    def dynamodb(self) -> DynamoDBClient:
        client: DynamoDBClient = self._client("dynamodb")
        return client

    @cache  # noqa: B019
    def ssm(self) -> SSMClient:
        client: SSMClient = self._client("ssm")
        return client

    @cache  # noqa: B019
    def logs(self) -> Any:
        return self._client("logs")

    @cache  # noqa: B019
    def s3(self) -> Any:
        return self._client("s3")

    def pricing(self, region: str) -> Any:
        """A client for AWS's Pricing API in `region`. The Pricing API exists in only a few regions, but has the prices
        of all regions.
        """
        with creating_client():
            return self.session.create_client("pricing", region_name=region, config=self._config)

    @cache  # noqa: B019
    def cloudformation(self) -> Any:
        return self._client("cloudformation")

    def _client(self, service: str) -> Any:
        with creating_client():
            return self.session.create_client(service, endpoint_url=self._endpoint, config=self._config)


@contextmanager
def creating_client() -> Iterator[None]:
    """A context manager for creating an AWS client. The context manager turns ValueError into Misconfigured, because
    botocore raises a bare ValueError for an invalid region or endpoint.
    """
    with translated_errors("making a client"):
        try:
            yield
        except (ProfileNotFound, ValueError) as error:
            raise Misconfigured(
                f"no client for AWS can be made: {error}; check region, profile and AWS_ENDPOINT_URL"
            ) from error


@contextmanager
def translated_errors(operation: str) -> Iterator[None]:
    """A context manager that raises RetryLater, Misconfigured or Refused in place of botocore's errors. `operation`
    describes the AWS operation in the error messages.
    """
    try:
        yield
    except NoRegionError as error:
        raise Misconfigured("no AWS region is set; export AWS_DEFAULT_REGION or configure a profile") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise Misconfigured(
            "no AWS credentials were found; export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or configure a profile"
        ) from error
    except (SSOError, LoginError, TokenRetrievalError) as error:
        raise Misconfigured(f"the login of the AWS profile has expired: {error}; run aws sso login") from error
    except (ConfigParseError, InvalidConfigError, CredentialRetrievalError) as error:
        raise Misconfigured(f"the AWS profile gives no credentials: {error}") from error
    except EndpointConnectionError as error:
        raise RetryLater(f"{operation}: {error}") from error
    except ClientError as error:
        raise _client_error(operation, error) from error
    except (BotoCoreError, ResponseParserError) as error:  # ResponseParserError: a proxy's error page
        raise RetryLater(f"{operation}: {error}") from error


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _client_error(operation: str, error: ClientError) -> RetryLater | Refused:
    code = error_code(error)
    http_status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    message = f"{operation}: {error.response.get('Error', {}).get('Message', '')}"
    is_transient = error_code(error) not in NO_CAPACITY_CODES and (code in _TRANSIENT_ERROR_CODES or http_status >= 500)
    return RetryLater(f"{code}: {message}") if is_transient else Refused(code, message)
