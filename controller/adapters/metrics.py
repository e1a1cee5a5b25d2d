"""Write metrics as log lines in CloudWatch's embedded metric format. Writing a log line needs no API call and no
permission. The embedded metric format is specified at
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html.
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
    """Writes metrics as log lines to standard output. Each count is added to a metric of the cluster and to a metric of
    the whole deployment. CloudWatch alarms watch the metrics of the whole deployment.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        self._write_metrics(cluster, [["table"], ["table", "cluster"]], {name: "Count"}, {name: value})

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Write the cluster's gauges (current values), such as the cluster's number of workers. The deployment has no
        gauges, because the sum of a gauge over all clusters would mean nothing.
        """
        self._write_metrics(cluster, [["table", "cluster"]], {name: GAUGE_UNITS[name] for name in values}, values)

    def _write_metrics(
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
