"""Write pydantic's errors as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not needed by commands that only print their help
    from pydantic import ValidationError


def wrong_fields(error: ValidationError, model_name: str) -> str:
    """A sentence that lists each wrong field and its error. `model_name` stands for errors that concern no single
    field.
    """
    problems = [(".".join(map(str, detail["loc"])) or model_name, detail["msg"]) for detail in error.errors()]
    return "; ".join(f"{field}: {message}" for field, message in problems)
