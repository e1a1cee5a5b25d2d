"""What MXNet recorded of an array that is differentiated: a graph of operators, whose inputs are weights and others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd  # isort: skip

SUMS = {"sum", "sum_axis", "_np_sum"}
MEANS = {"mean", "_npi_mean"}
EXTREMES = {"max", "min", "norm", "prod", "_np_max", "_np_min", "_np_prod", "_npi_norm"}
REDUCTIONS = SUMS | MEANS | EXTREMES
RATIOS = {"elemwise_div", "broadcast_div", "_npi_true_divide", "_div"}
QUOTIENTS = RATIOS | {"_npi_rtrue_divide_scalar", "_rdiv_scalar"}
TERMS = {"elemwise_add", "broadcast_add", "elemwise_sub", "broadcast_sub", "_npi_add", "_npi_subtract", "add_n"}
MULTIPLIES, DIVIDES = {"_mul_scalar", "_npi_multiply_scalar"}, {"_div_scalar", "_npi_true_divide_scalar"}
ALIKE = MULTIPLIES | DIVIDES | {
    "_plus_scalar", "_minus_scalar", "_rminus_scalar", "_npi_add_scalar", "_npi_subtract_scalar",
    "_npi_rsubtract_scalar", "negative", "_npi_negative", "Reshape", "_np_reshape", "expand_dims", "squeeze",
    "_np_squeeze", "Cast", "amp_cast", "_copyto", "_np_copy", "identity", "_copy",
}  # fmt: skip
STACKS = {"stack", "Concat", "concat", "_npi_stack", "_npi_concatenate"}
PRODUCTS = {"elemwise_mul", "broadcast_mul", "_npi_multiply"}
LINEAR = SUMS | TERMS | ALIKE | STACKS | PRODUCTS  # through which a mean below stays one
DOTS = {"dot", "batch_dot", "_np_dot"}  # of weights with weights: no layer
MASKS = {"_contrib_boolean_mask", "_npi_boolean_mask"}
TAKES = {"take", "_npi_take"}
PICKS = {"gather_nd"}
# Twice as much of what they are made of is twice as much of them
PROPORTIONAL = {
    "slice", "slice_axis", "slice_like", "_npi_slice", "transpose", "_np_transpose", "SwapAxis",
    "Flatten", "broadcast_to", "broadcast_like", "broadcast_axis", "tile", "reverse", "pick", "take", "where",
    "_npi_where", "relu", "_npx_relu", "abs", "_npi_absolute", "SequenceMask", "SliceChannel", "_split_v2",
}  # fmt: skip
COMPARISONS = {
    f"{kind}{which}{end}"
    for kind, end in (("_", ""), ("_", "_scalar"), ("broadcast_", ""), ("_npi_", ""), ("_npi_", "_scalar"))
    for which in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "less", "less_equal")
}
# Of a number by itself: a term that is made of nothing else has no layer in it
ELEMENTWISE = LINEAR | MEANS | QUOTIENTS | COMPARISONS | (PROPORTIONAL - {"pick", "take"}) | {
    "square", "_npi_square", "sqrt", "_npi_sqrt", "abs", "_npi_absolute", "exp", "_npi_exp", "log", "_npi_log", "log1p",
    "_power_scalar", "_npi_power_scalar", "_rpower_scalar", "smooth_l1", "relu", "sigmoid", "Activation",
    "clip", "_maximum", "_minimum", "_maximum_scalar", "_minimum_scalar", "broadcast_maximum", "broadcast_minimum",
    "sign", "zeros_like", "ones_like", "BlockGrad",
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    op: str
    name: str
    attributes: dict[str, str]
    inputs: tuple[int, ...]

    @property
    def is_mean(self) -> bool:
        """Over the batch."""
        return self.op in MEANS and not self.of_each

    @property
    def of_each(self) -> bool:
        """Whether a reduction is that of each sample, as Gluon's losses make it; which axis is the batch's is taken to
        be the first.
        """
        axes = re.findall(r"-?\d+", self.attributes.get("axis", ""))
        return self.op in REDUCTIONS and (self.excludes or (bool(axes) and "0" not in axes))

    @property
    def along(self) -> bool:
        """Whether it names axes."""
        return bool(re.search(r"\d", self.attributes.get("axis", "")))

    @property
    def excludes(self) -> bool:
        """Over all axes but those that are named."""
        return self.attributes.get("exclude") == "True"

    @property
    def normalises(self) -> bool:
        """Whether its backward pass divides by what it counts in the batch, whatever is made of its output."""
        return self.attributes.get("normalization") in ("valid", "batch")


class Graph:
    """Of one array. Its nodes are in an order in which inputs come before what is made of them."""

    def __init__(self, head: Any) -> None:
        graph = json.loads(autograd.get_symbol(head).tojson())
        self.nodes = [
            Node(n["op"], n["name"], n.get("attrs") or {}, tuple(each[0] for each in n["inputs"]))
            for n in graph["nodes"]
        ]
        self.top: int = graph["heads"][0][0]

    def where(self, begins: Callable[[int, Node], bool], through: Callable[[Node], bool]) -> list[bool]:
        """Of each node, whether it `begins` there, or in one that it is made of, `through` nothing but such."""
        found = list[bool]()
        for at, node in enumerate(self.nodes):
            found.append(begins(at, node) or (through(node) and any(found[i] for i in node.inputs)))
        return found

    @cached_property
    def data(self) -> list[bool]:
        """Whether it depends on anything but weights: these have a gradient of their own, and are called var."""
        return self.where(lambda at, node: node.op == "null" and not node.name.startswith("var"), lambda node: True)

    @cached_property
    def weights(self) -> list[bool]:
        return self.where(lambda at, node: node.op == "null" and node.name.startswith("var"), lambda node: True)

    @cached_property
    def elementwise(self) -> list[bool]:
        """Whether it is made of weights and arrays without a layer between them."""
        found = list[bool]()
        for node in self.nodes:
            simple = node.op in ELEMENTWISE or (node.op in DOTS and not self.data[len(found)])
            found.append(node.op == "null" or (simple and all(found[i] for i in node.inputs)))
        return found

    def reduces(self, at: int, node: Node) -> bool:
        """Over the batch."""
        return node.op in REDUCTIONS and not node.of_each and self.data[at]

    def below(self, at: int, inputs: Callable[[Node], Sequence[int]] = lambda node: node.inputs) -> list[int]:
        """All that it is made of, and itself, by way of these `inputs` of each."""
        waiting, seen = [at], set[int]()
        while waiting:
            if (number := waiting.pop()) not in seen:
                seen.add(number)
                waiting += inputs(self.nodes[number])
        return sorted(seen)
