"""The base class of all models whose values one process sends to another."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of all models whose values one process sends to another. The models are immutable, and ignore unknown
    fields, so that sender and receiver may have different versions.

    All numbers must be finite, because JSON has no infinite numbers and no NaN, and every comparison with NaN is false.
    A model's validator is built at its first use, because each Lambda function and each node uses only a few models.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)
