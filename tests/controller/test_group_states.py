"""What Auto Scaling says of a member is told apart as far as anything is decided by it.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-lifecycle.html
"""

from __future__ import annotations

import pytest
from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
from dyntrain.controller.contract.errors import ControllerError, Refused, RetryLater
from paged_aws import PagedAws

# By state: the phase, what its lifecycle action waits for, and whether it counts as running.
STATES = {
    "Pending": ("launching", None, True),
    "Pending:Wait": ("launching", "launch", True),
    "Pending:Proceed": ("launching", None, True),
    "InService": ("in_service", None, True),
    "EnteringStandby": ("in_service", None, True),
    "Standby": ("in_service", None, False),
    "Terminating": ("terminating", None, False),
    "Terminating:Wait": ("terminating", "terminate", False),
    "Terminating:Proceed": ("terminating", None, False),
    "Terminated": ("left", None, False),
    "Detaching": (None, None, False),
    "Detached": (None, None, False),
    "Warmed:Pending": ("warm", None, False),
    "Warmed:Running": ("warm", None, False),
    "Warmed:Stopped": ("warm", None, False),
    "Warmed:Terminating": ("warm", None, False),
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> PagedAws:
    aws = PagedAws(monkeypatch)
    members = [{"InstanceId": state, "LifecycleState": state, "ProtectedFromScaleIn": True} for state in STATES]
    limits = {"MinSize": 1, "MaxSize": 9, "DesiredCapacity": 5}
    aws.holds["DescribeAutoScalingGroups"] = [{"AutoScalingGroupName": "g", **limits, "Instances": members}]
    return aws


def test_each_state_of_a_member_has_its_phase_and_says_what_waits(aws: PagedAws) -> None:
    seen = {one.instance: (one.phase, one.waits) for one in AutoScalingGroups(aws.clients).members(["g"])}
    assert seen == {name: (phase, waits) for name, (phase, waits, _) in STATES.items() if phase is not None}


def test_a_member_that_is_on_its_way_out_or_in_reserve_does_not_count_as_running(aws: PagedAws) -> None:
    """By this number the group is lowered when a launch failed: what is too high asks again for what there is not,
    what is too low ends machines that train.
    """
    size = AutoScalingGroups(aws.clients).sizes(["g"])["g"]
    assert (size.minimum, size.maximum, size.desired) == (1, 9, 5)
    assert size.running == sum(runs for _, _, runs in STATES.values())


# What passes by itself, in the words of the services that the controller asks.
LATER = (
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "ProvisionedThroughputExceededException",
    "InternalServerError",
    "InternalFailure",
    "InternalError",
    "ServiceUnavailable",
    "Unavailable",
    "TooManyUpdates",
    "ResourceContention",
    "TransactionInProgressException",
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [*((code, RetryLater) for code in LATER), ("UnauthorizedOperation", Refused), ("ValidationError", Refused)],
)
def test_what_passes_by_itself_is_tried_again_and_a_no_is_a_no(
    aws: PagedAws, code: str, kind: type[ControllerError]
) -> None:
    aws.refuses["DescribeAutoScalingGroups"] = 0
    aws.code = code
    with pytest.raises(kind, match=code):
        AutoScalingGroups(aws.clients).members(["g"])


def test_an_unknown_word_for_a_failure_of_aws_itself_is_tried_again_too(aws: PagedAws) -> None:
    aws.refuses["DescribeAutoScalingGroups"] = 0
    aws.code = "SomethingNew"
    for status, kind in ((499, Refused), (500, RetryLater), (503, RetryLater)):
        aws.calls.clear()
        aws.status = status
        with pytest.raises(kind):
            AutoScalingGroups(aws.clients).members(["g"])
