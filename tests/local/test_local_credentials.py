"""An instance's credentials come from its metadata service, which may be late or away for a moment."""

from __future__ import annotations

import os

import pytest
from dyntrain.controller.contract.messages import parameter
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.reports.aws import EventBridgeReports, SsmParameters
from dyntrain.training.coordinator.hosts import AwsHosts, HostsError
from local_template import prepared
from local_toycloud import ToyCloud


def test_node_and_coordinator_that_had_no_credentials_at_first_have_them_once_there_are_some(
    toy: ToyCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 asks the metadata service once, for a second, and a client that was made without keeps none for ever."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    keys = {name: value for name, value in toy.cloud.environment.items() if "KEY" in name}
    for name in toy.cloud.environment.keys() - keys.keys():
        monkeypatch.setenv(name, toy.cloud.environment[name])
    parameters, reports, hosts = SsmParameters("us-east-1"), EventBridgeReports("us-east-1"), AwsHosts("demo", "local")
    with pytest.raises(ServiceUnavailable, match="credentials"):
        parameters.get(parameter("demo", "node"))
    with pytest.raises(ServiceUnavailable, match="credentials"):
        reports.put(prepared())
    with pytest.raises(HostsError, match="credentials"):
        hosts.read_endpoint()
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    assert parameters.get(parameter("demo", "node")) == {}
    reports.put(prepared())
    assert (hosts.read_endpoint(), hosts.read_target()) == (None, None)
