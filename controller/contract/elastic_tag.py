"""The tag by which people ask that an instance join a cluster. Only its key matters, the value does not."""

from __future__ import annotations

from dataclasses import dataclass

ELASTIC_TAG_SUFFIX = "-aws-dl-cfn-elastic-worker"


@dataclass(frozen=True)
class ElasticTag:
    """The suffix of a stage's tag keys; a key is the cluster's name and this suffix."""

    suffix: str = ELASTIC_TAG_SUFFIX

    def of(self, cluster: str) -> str:
        return f"{cluster}{self.suffix}"

    def has(self, key: str) -> bool:
        return key.endswith(self.suffix)

    def cluster(self, key: str) -> str:
        """The cluster that a tag key names; "" where nothing stands before the suffix."""
        return key.removesuffix(self.suffix)


ELASTIC_TAG = ElasticTag()  # of a stage that was deployed without a suffix of its own
