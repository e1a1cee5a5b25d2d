"""What the adapters make of AWS's answers, given in AWS's form, which botocore's Stubber holds against its model.

A reservation that is targeted counts only for who names it; one that is read as open would promise a place to anybody.
"""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from dyntrain.controller.adapters.reservations import Ec2Reservations
from dyntrain.controller.adapters.ssm import SsmSecrets
from dyntrain.controller.adapters.stacks import AwsStacks
from dyntrain.controller.contract.errors import GiveUp, Misconfigured, RetryLater

END = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)


def clients(service: str, operation: str, answer: dict[str, Any] | None = None, error: str = "", says: str = "") -> Any:
    """Whose client of that service answers one call, with `answer` or with `error`."""
    client = boto3.client(service, "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    stubber = Stubber(client)
    if error:
        stubber.add_client_error(operation, error, says, http_status_code=400)
    else:
        stubber.add_response(operation, answer or {})
    stubber.activate()
    return SimpleNamespace(**{service: lambda: client})


def test_the_webhooks_address_is_a_secret_or_nothing() -> None:
    def parameter(kind: str) -> Any:
        return clients("ssm", "get_parameter", {"Parameter": {"Name": "n", "Type": kind, "Value": "https://hook"}})

    assert SsmSecrets(parameter("SecureString"), "prod").webhook() == "https://hook"
    for kind in ("String", "StringList"):
        with pytest.raises(Misconfigured, match="create it again as a SecureString"):
            SsmSecrets(parameter(kind), "prod").webhook()


def test_a_parameter_that_is_not_there_is_none_and_any_other_refusal_is_told() -> None:
    assert SsmSecrets(clients("ssm", "get_parameter", error="ParameterNotFound"), "prod").webhook() is None
    with pytest.raises(RetryLater):
        SsmSecrets(clients("ssm", "get_parameter", error="ThrottlingException"), "prod").webhook()


@pytest.mark.parametrize(
    ("entry", "targeted", "block", "available"),
    [
        ({"InstanceMatchCriteria": "targeted"}, True, False, 2),
        ({"InstanceMatchCriteria": "open"}, False, False, 2),
        ({}, False, False, 2),
        ({"ReservationType": "capacity-block"}, False, True, 2),
        ({"ReservationType": "default"}, False, False, 2),
        ({"AvailableInstanceCount": 9}, False, False, 4),  # never more than there are
    ],
)
def test_a_capacity_reservation_is_read_as_aws_means_it(
    entry: dict[str, Any], targeted: bool, block: bool, available: int
) -> None:
    whole = {
        "CapacityReservationId": "cr-1",
        "InstanceType": "p3.2xlarge",
        "AvailabilityZone": "eu-west-1a",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 2,
        "EndDate": END,
        **entry,
    }
    answer = {"CapacityReservations": [whole]}
    (reservation,) = Ec2Reservations(clients("ec2", "describe_capacity_reservations", answer)).capacity_reservations()
    assert (reservation.targeted, reservation.block, reservation.available, reservation.total) == (
        targeted,
        block,
        available,
        4,
    )
    assert reservation.end == END.timestamp()


def test_a_stack_that_does_not_exist_is_none_and_any_other_refusal_is_told() -> None:
    gone = clients("cloudformation", "describe_stacks", error="ValidationError", says="Stack s does not exist")
    assert AwsStacks(gone, "").stack("s") is None
    for error, says in (("ValidationError", "the name is too long"), ("Throttling", "does not exist")):
        refused = clients("cloudformation", "describe_stacks", error=error, says=says)
        with pytest.raises((GiveUp, RetryLater), match="looking at the stack s"):
            AwsStacks(refused, "").stack("s")
