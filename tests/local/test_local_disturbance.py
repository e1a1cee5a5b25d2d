"""What the embedded cloud does worse on request: without it, a fault hunt would hunt in a cloud that never fails."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.local.calls import ApiCall
from dyntrain.controller.local.disturbance import THROTTLING_ERRORS, Disturbance, DisturbanceRates
from dyntrain.controller.local.errors import ApiError
from local_toycloud import ToyCloud
from waiting import wait_for


def disturbed(**disorder: float) -> Disturbance:
    disturbance = Disturbance(7)
    disturbance.set(DisturbanceRates(**disorder))  # type: ignore[arg-type]
    return disturbance


def test_without_disorder_deliveries_are_as_usual() -> None:
    assert Disturbance(7).delivery_delays([0.1, 0.2], losable=True) == [0.1, 0.2]


def test_an_event_is_lost_but_a_scheduled_one_never_is() -> None:
    disturbance = disturbed(lost=1.0)
    assert disturbance.delivery_delays([0.1], losable=True) == []
    assert disturbance.delivery_delays([0.1], losable=False) == [0.1], "AWS delivers scheduled events at least once"
    assert disturbance.counts == {"event lost": 1}


def test_an_event_comes_twice_or_late() -> None:
    twice = disturbed(doubled=1.0, late_seconds=3.0).delivery_delays([0.1], losable=True)
    late = disturbed(late=1.0, late_seconds=3.0).delivery_delays([0.1], losable=True)
    assert twice[0] == 0.1
    assert 0 <= twice[1] <= 3
    assert 0.1 < late[0] <= 3.1


@pytest.mark.parametrize("service", sorted(THROTTLING_ERRORS))
def test_only_the_named_service_is_throttled(service: str) -> None:
    disturbance = Disturbance(7)
    disturbance.set(DisturbanceRates(throttled={service: 1.0}))
    with pytest.raises(ApiError):
        disturbance.raise_if_throttled(ApiCall(service, "Anything", "us-east-1", {}, {}))
    disturbance.raise_if_throttled(ApiCall("sts", "Anything", "us-east-1", {}, {}))
    assert disturbance.counts == {f"throttled {service}": 1}


@pytest.mark.parametrize(
    ("service", "method"), [("ssm", "describe_parameters"), ("ec2", "describe_instances"), ("dynamodb", "list_tables")]
)
def test_a_client_understands_the_refusal_and_gets_through_again_afterwards(
    toy: ToyCloud, service: str, method: str
) -> None:
    client = toy.cloud.client(service)
    client.meta.events.register("needs-retry.*", lambda **_: False)  # one try, so that the refusal is seen
    toy.cloud.disturbance.set(DisturbanceRates(throttled={service: 1.0}))
    with pytest.raises(ClientError) as refusal:
        getattr(client, method)()
    toy.cloud.disturbance.set(DisturbanceRates())
    assert refusal.value.response["Error"]["Code"] in ("ThrottlingException", "RequestLimitExceeded")
    assert getattr(client, method)()


def test_a_lost_event_reaches_no_handler_and_the_next_one_does(toy: ToyCloud) -> None:
    toy.cloud.disturbance.set(DisturbanceRates(lost=1.0))
    toy.put(number=1)
    toy.cloud.disturbance.set(DisturbanceRates())
    toy.put(number=2)
    wait_for(lambda: toy.notes("on_toy"))
    assert [payload["detail"]["number"] for payload in toy.payloads("on_toy")] == [2]
