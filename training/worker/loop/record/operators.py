"""Roles of MXNet's operators in a loss, by the operators' names in the record of MXNet 1.9.1."""

from __future__ import annotations

import ctypes

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.base import _LIB, OpHandle, c_str, check_call  # isort: skip

SUMS = {"sum", "sum_axis", "_np_sum"}  # operators that sum along axes
MEANS = {"mean", "_npi_mean"}
EXTREMES = {"max", "min", "norm", "prod", "_np_max", "_np_min", "_np_prod", "_npi_norm"}
REDUCTIONS = SUMS | MEANS | EXTREMES
RATIOS = {"elemwise_div", "broadcast_div", "_npi_true_divide", "_div"}  # divisions of an array by an array
QUOTIENTS = RATIOS | {"_npi_rtrue_divide_scalar", "_rdiv_scalar"}
TERMS = {  # operators that add or subtract two terms
    "elemwise_add", "broadcast_add", "elemwise_sub", "broadcast_sub", "_npi_add", "_npi_subtract", "add_n",
}  # fmt: skip
MULTIPLICATIONS, DIVISIONS = {"_mul_scalar", "_npi_multiply_scalar"}, {"_div_scalar", "_npi_true_divide_scalar"}
ALIKE = MULTIPLICATIONS | DIVISIONS | {  # operators that scale, shift, copy or reshape one array
    "_plus_scalar", "_minus_scalar", "_rminus_scalar", "_npi_add_scalar", "_npi_subtract_scalar",
    "_npi_rsubtract_scalar", "negative", "_npi_negative", "Reshape", "_np_reshape", "expand_dims", "squeeze",
    "_np_squeeze", "Cast", "amp_cast", "_copyto", "_np_copy", "identity", "_copy",
}  # fmt: skip
STACKS_BESIDE = {"stack", "_npi_stack"}  # operators that stack arrays along a new axis
STACKS = STACKS_BESIDE | {"Concat", "concat", "_npi_concatenate"}
PRODUCTS = {"elemwise_mul", "broadcast_mul", "_npi_multiply"}
LINEAR = SUMS | TERMS | ALIKE | STACKS | PRODUCTS  # operators of which a mean stays a factor
DOTS = {"dot", "batch_dot", "_np_dot"}  # matrix products, which are no layer if both factors are weights
MASKS = {"_contrib_boolean_mask", "_npi_boolean_mask"}  # operators that select numbers by a mask
TAKES = {"take", "_npi_take"}  # operators that select rows by their indices
PICKS = {"gather_nd"}  # operators that select numbers by their indices
OWN_BACKWARD = {"_CustomFunction", "Custom"}  # operators with a backward pass of the script's own
HYBRID_CALL = "_CachedOp"  # operator of a call of a hybridized block
LENGTHS = {"slice_axis", "slice", "SliceChannel", "_split_v2"}  # take some of a shape's numbers
SHAPES = {"shape_array", "size_array"}  # operators that return an array's shape or size
SHAPE_LIKE = {"reshape_like", "broadcast_like", "slice_like"}  # the second input gives only its shape
PROPORTIONAL = {  # operators by which twice the input gives twice the output
    "slice", "slice_axis", "slice_like", "_npi_slice", "transpose", "_np_transpose", "SwapAxis",
    "Flatten", "broadcast_to", "broadcast_like", "broadcast_axis", "tile", "reverse", "pick", "take", "where",
    "_npi_where", "relu", "_npx_relu", "abs", "_npi_absolute", "SequenceMask", "SliceChannel", "_split_v2",
}  # fmt: skip
COMPARISONS = {
    f"{prefix}{comparison}{suffix}"
    for prefix, suffix in (("_", ""), ("_", "_scalar"), ("broadcast_", ""), ("_npi_", ""), ("_npi_", "_scalar"))
    for comparison in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "less", "less_equal")
}
# Operators on each number by itself: a term with only these has no layer
ELEMENTWISE = LINEAR | MEANS | QUOTIENTS | COMPARISONS | (PROPORTIONAL - {"pick", "take"}) | {
    "square", "_npi_square", "sqrt", "_npi_sqrt", "abs", "_npi_absolute", "exp", "_npi_exp", "log", "_npi_log", "log1p",
    "_power_scalar", "_npi_power_scalar", "_rpower_scalar", "smooth_l1", "relu", "sigmoid", "Activation",
    "clip", "_maximum", "_minimum", "_maximum_scalar", "_minimum_scalar", "broadcast_maximum", "broadcast_minimum",
    "sign", "zeros_like", "ones_like", "BlockGrad",
}  # fmt: skip


def handle_of(operator: str) -> int:
    """Return the number (handle) by which MXNet identifies the operator when it is called."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(operator), ctypes.byref(handle)))
    return int(handle.value)
