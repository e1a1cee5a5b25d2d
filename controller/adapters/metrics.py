"""Metrics as lines of the log, in CloudWatch's embedded metric format: no call, no permission, no wait.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import sys
import time

NAMESPACE = "dyntrain"


class EmbeddedMetrics:
    """Each count goes to two metrics: of the deployment, which its table names and its alarms watch, and of the cluster in it."""

    def __init__(self, table: str) -> None:
        self._table = table

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        metrics = {"Namespace": NAMESPACE, "Dimensions": [["table"], ["table", "cluster"]], "Metrics": [{"Name": name, "Unit": "Count"}]}
        line = {"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [metrics]}, "table": self._table, "cluster": cluster, name: value}
        sys.stdout.write(json.dumps(line) + "\n")
