"""Write pydantic's validation errors as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # not needed by commands that only print their help
    from pydantic import ValidationError


def wrong_fields(error: ValidationError, model_name: str) -> str:
    """A sentence that lists each wrong field and its error. If an error concerns no single field, `model_name` stands
    in place of the field.
    """
    field_errors = [
        (".".join(map(str, error_detail["loc"])) or model_name, error_detail["msg"]) for error_detail in error.errors()
    ]
    return "; ".join(f"{field}: {message}" for field, message in field_errors)
