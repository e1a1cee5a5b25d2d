"""Metrics as lines of the log, in CloudWatch's embedded metric format: no call, no permission, no wait.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import sys
import time

NAMESPACE = "dyntrain"


class EmbeddedMetrics:
    def count(self, name: str, cluster: str, value: int = 1) -> None:
        metrics = {"Namespace": NAMESPACE, "Dimensions": [["cluster"]], "Metrics": [{"Name": name, "Unit": "Count"}]}
        line = {"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [metrics]}, "cluster": cluster, name: value}
        sys.stdout.write(json.dumps(line) + "\n")
