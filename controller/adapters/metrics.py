"""Write metrics as log lines in CloudWatch's embedded metric format. Writing a log line needs no API call and no
permission.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

NAMESPACE = "dyntrain"
GAUGES = {"Workers": "Count", "SamplesPerSecond": "Count/Second", "PercentDone": "Percent", "PausedSeconds": "Seconds"}


class EmbeddedMetrics:
    """Write metrics into the log. Each count goes to two metrics: one of the deployment, which has the table's name and
    CloudWatch alarms, and one of the cluster.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        self._write(cluster, [["table"], ["table", "cluster"]], {name: "Count"}, {name: value})

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Write the cluster's gauges. The deployment has no gauges, because their sum over clusters would mean
        nothing.
        """
        self._write(cluster, [["table", "cluster"]], {name: GAUGES[name] for name in values}, values)

    def _write(
        self, cluster: str, dimensions: list[list[str]], units: Mapping[str, str], values: Mapping[str, float]
    ) -> None:
        metrics = {
            "Namespace": NAMESPACE,
            "Dimensions": dimensions,
            "Metrics": [{"Name": name, "Unit": unit} for name, unit in units.items()],
        }
        header = {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [metrics]}
        line = {"_aws": header, "table": self._table, "cluster": cluster, **values}
        sys.stdout.write(json.dumps(line) + "\n")
