"""The elastic tag, by which people ask that an instance join a cluster. Only the key of the tag matters."""

from __future__ import annotations

from dataclasses import dataclass

ELASTIC_TAG_SUFFIX = "-aws-dl-cfn-elastic-worker"


@dataclass(frozen=True)
class ElasticTag:
    """The suffix of the elastic tag's key. The key is the cluster's name followed by the suffix. Each stage, that is,
    each deployed controller, has one suffix.
    """

    suffix: str = ELASTIC_TAG_SUFFIX

    def of(self, cluster: str) -> str:
        return f"{cluster}{self.suffix}"

    def has(self, key: str) -> bool:
        return key.endswith(self.suffix)

    def cluster(self, key: str) -> str:
        """The cluster that a tag key names; "" for a key that is only the suffix."""
        return key.removesuffix(self.suffix)


ELASTIC_TAG = ElasticTag()  # the default of a stage that was deployed without its own suffix
