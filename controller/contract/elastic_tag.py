"""The elastic tag, by which users ask an instance to join a cluster. The key of the tag names the cluster, and the
value of the tag has no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

ELASTIC_TAG_SUFFIX = "-aws-dl-cfn-elastic-worker"


@dataclass(frozen=True)
class ElasticTag:
    """The elastic tag of one stage, that is, of one deployed controller. The tag's key is the cluster's name followed
    by the stage's suffix.
    """

    suffix: str = ELASTIC_TAG_SUFFIX  # of the tag's key, after the cluster's name

    def of(self, cluster: str) -> str:  # the tag's key for this cluster
        return f"{cluster}{self.suffix}"

    def has(self, key: str) -> bool:  # whether the key is that of an elastic tag
        return key.endswith(self.suffix)

    def cluster(self, key: str) -> str:  # the cluster's name in the tag's key
        """The name of the cluster in the tag's key. Returns "" if the key consists only of the suffix."""
        return key.removesuffix(self.suffix)


ELASTIC_TAG = ElasticTag()  # the default of a stage that was deployed without its own suffix
