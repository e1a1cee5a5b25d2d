"""Find the names of the positional arguments of MXNet's `Module.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIT_ARGUMENTS = (
    "eval_metric", "epoch_end_callback", "batch_end_callback", "kvstore", "optimizer", "optimizer_params",
    "eval_end_callback", "eval_batch_end_callback", "initializer", "arg_params", "aux_params", "allow_missing",
    "force_rebind", "force_init", "begin_epoch", "num_epoch", "validation_metric", "monitor", "sparse_row_id_fn",
)  # fmt: skip  # MXNet's order after train_data and eval_data


def arguments_by_name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of `Module.fit` after the two data arguments, by name. Raises TypeError for arguments that
    `fit` does not take.
    """
    if len(args) > len(_FIT_ARGUMENTS) or set(_FIT_ARGUMENTS[: len(args)]) & set(kwargs):
        raise TypeError("fit() got too many arguments, or one argument twice")
    unknown_names = set(kwargs) - set(_FIT_ARGUMENTS)
    if unknown_names:
        raise TypeError(f"fit() got an unexpected argument {sorted(unknown_names)[0]!r}")
    return {**dict(zip(_FIT_ARGUMENTS, args, strict=False)), **kwargs}
