"""AWS's own list of instance types, as DescribeInstanceTypes gave it when moto last asked."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import moto


def aws_types() -> dict[str, dict[str, Any]]:
    """What EC2 says of each type, by its name."""
    with gzip.open(Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz") as file:
        types: dict[str, dict[str, Any]] = json.load(file)
    return types
