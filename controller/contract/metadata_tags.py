"""Which tag keys an instance may have when its tags are readable in its metadata, where nodes read them.

EC2 launches no instance with another key, and gives none to a running one: kubernetes/cloud-provider-aws#762,
eksctl-io/eksctl#8383, and docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html. Tags of a stack come
to its groups and their instances too (believed, from
docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-resource-tags.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PATTERN = r"[0-9a-zA-Z\-_+=,.@:]{1,255}"
RESERVED = (".", "..", "_index")
_KEY = re.compile(PATTERN)


def refused_keys(keys: Iterable[str]) -> list[str]:
    """The keys that EC2 refuses, sorted. AWS's own keys are never among them."""
    return sorted(
        key for key in keys if not key.startswith("aws:") and (key in RESERVED or _KEY.fullmatch(key) is None)
    )
