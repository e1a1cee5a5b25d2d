"""Write metrics as log lines in CloudWatch's embedded metric format. Writing a log line needs no API call and no
permission.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

NAMESPACE = "dyntrain"  # of the metrics in CloudWatch
GAUGE_UNITS = {
    "Workers": "Count",
    "SamplesPerSecond": "Count/Second",
    "PercentDone": "Percent",
    "PausedSeconds": "Seconds",
}


class EmbeddedMetrics:
    """Write metrics as log lines. Each count goes to two metrics: one for the whole deployment, which CloudWatch alarms
    watch, and one for the cluster.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        self._write(cluster, [["table"], ["table", "cluster"]], {name: "Count"}, {name: value})

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Write the cluster's gauges, such as its number of workers. The deployment has no gauges, because the sum of a
        gauge over all clusters would mean nothing.
        """
        self._write(cluster, [["table", "cluster"]], {name: GAUGE_UNITS[name] for name in values}, values)

    def _write(
        self, cluster: str, dimensions: list[list[str]], units: Mapping[str, str], values: Mapping[str, float]
    ) -> None:
        metric_definitions = {
            "Namespace": NAMESPACE,
            "Dimensions": dimensions,
            "Metrics": [{"Name": name, "Unit": unit} for name, unit in units.items()],
        }
        metadata = {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [metric_definitions]}
        line = {"_aws": metadata, "table": self._table, "cluster": cluster, **values}
        sys.stdout.write(json.dumps(line) + "\n")
