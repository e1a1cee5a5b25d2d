"""The tag keys that EC2 accepts on instances whose metadata service shows their tags. Nodes read their tags from the
metadata service.

EC2 refuses to launch an instance with another key, and to add another key to a running instance:
kubernetes/cloud-provider-aws#762, eksctl-io/eksctl#8383, and
docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html. The tags of a stack are probably copied to its
groups and their instances (docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-resource-tags.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TAG_KEY_PATTERN = r"[0-9a-zA-Z\-_+=,.@:]{1,255}"
RESERVED_KEYS = (".", "..", "_index")
_KEY = re.compile(TAG_KEY_PATTERN)


def refused_keys(keys: Iterable[str]) -> list[str]:
    """The keys that EC2 refuses, sorted. AWS's own keys are never refused."""
    return sorted(
        key for key in keys if not key.startswith("aws:") and (key in RESERVED_KEYS or _KEY.fullmatch(key) is None)
    )
