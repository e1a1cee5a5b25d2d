"""The base of all models that cross a process boundary."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of all models that cross a process boundary. The models are immutable and ignore unknown fields, so that
    versions can differ.

    Numbers are finite, because JSON has no other numbers and every comparison with NaN is false. Validators are built
    at a model's first use, because a Lambda function or a node uses only a few models.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)
