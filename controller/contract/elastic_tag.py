"""The tag by which people ask that an instance join a cluster. Its key alone says it, its value nothing."""

from __future__ import annotations

from dataclasses import dataclass

ELASTIC_TAG_SUFFIX = "-aws-dl-cfn-elastic-worker"


@dataclass(frozen=True)
class ElasticTag:
    """How a stage has these keys end; before that stands the cluster's name."""

    suffix: str = ELASTIC_TAG_SUFFIX

    def of(self, cluster: str) -> str:
        return f"{cluster}{self.suffix}"

    def has(self, key: str) -> bool:
        return key.endswith(self.suffix)

    def cluster(self, key: str) -> str:
        """Empty where nothing stands before the suffix."""
        return key.removesuffix(self.suffix)


ELASTIC_TAG = ElasticTag()  # of a stage that was deployed without a suffix of its own
