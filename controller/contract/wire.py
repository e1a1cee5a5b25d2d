"""The base of all models that cross a process boundary."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of everything that crosses a process boundary: immutable, and ignoring unknown fields, so that versions can
    differ.

    Numbers are finite: JSON has no others, and one NaN among the times would spoil every comparison after it.
    Validators are built at a model's first use: a Lambda function, or a node, uses few of them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)
