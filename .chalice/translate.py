"""Translates SAM to plain CloudFormation, as the `AWS::Serverless` transform does, for lint and the embedded cloud.

Runs in its own environment (aws-sam-translator pins pydantic): `build/tools/lint/bin/python .chalice/translate.py
sam.json out.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

PLACEHOLDER = {"Bucket": "bucket-of-the-stage", "Key": "deployment.zip"}


class NoManagedPolicies:
    """No managed policies: all roles are written out, except for the execution role's policy, whose ARN needs no
    look-up.
    """

    def load(self) -> dict[str, str]:
        return {}


def translate(template: dict[str, Any]) -> dict[str, Any]:
    """Translate the template. A local CodeUri becomes a place in a bucket, without which the transform refuses it."""
    from samtranslator.translator.transform import transform  # type: ignore[import-not-found]  # in its own environment

    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function" and isinstance(resource["Properties"]["CodeUri"], str):
            resource["Properties"]["CodeUri"] = dict(PLACEHOLDER)
    plain_template: dict[str, Any] = transform(template, {}, NoManagedPolicies())
    plain_template.pop("Transform", None)
    return plain_template


def main() -> int:
    parser = argparse.ArgumentParser(prog="translate")
    parser.add_argument("sam", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the partition of ARNs depends on it
    plain_template = translate(json.loads(arguments.sam.read_text(encoding="utf-8")))
    arguments.out.write_text(json.dumps(plain_template, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
