"""Find tag keys that EC2 refuses on instances whose metadata service shows the instance's tags. The metadata service of
nodes shows the node's tags.

EC2 refuses to launch an instance with a tag key that does not match `TAG_KEY_PATTERN`. EC2 refuses to add the key to a
running instance, too: kubernetes/cloud-provider-aws#762, eksctl-io/eksctl#8383, and
docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html. CloudFormation probably copies the tags of a
stack to the Auto Scaling groups of the stack, and so to their instances
(docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-resource-tags.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TAG_KEY_PATTERN = r"[0-9a-zA-Z\-_+=,.@:]{1,255}"  # the keys that EC2 accepts
RESERVED_KEYS = (".", "..", "_index")  # keys that EC2 refuses although they match the pattern
_ACCEPTED_KEY = re.compile(TAG_KEY_PATTERN)


def refused_keys(keys: Iterable[str]) -> list[str]:
    """The tag keys that EC2 refuses, in sorted order. EC2 never refuses AWS's own keys, which begin with `aws:`."""
    return sorted(
        key
        for key in keys
        if not key.startswith("aws:") and (key in RESERVED_KEYS or _ACCEPTED_KEY.fullmatch(key) is None)
    )
