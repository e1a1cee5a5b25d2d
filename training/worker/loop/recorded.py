"""What a loss is made of, as MXNet recorded it: a graph of operators, whose inputs are weights and other arrays."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd  # isort: skip

SUM, MEAN, WEIGHTS, DIVIDED, UNKNOWN = "a sum", "a mean", "weights alone", "a quotient", "unknown"
EACH, CHOSEN, GIVEN = "a number for each sample", "a mean over chosen places", "gradients that are given"
PENALTY = "a sum of weights and arrays, through no layer"
SUMS = {"sum", "sum_axis", "_np_sum", "_npi_sum"}
MEANS = {"mean", "_npi_mean", "_np_mean"}
QUOTIENTS = {"elemwise_div", "broadcast_div", "_npi_true_divide", "_div", "_npi_rtrue_divide_scalar", "_rdiv_scalar"}
TERMS = {"elemwise_add", "broadcast_add", "elemwise_sub", "broadcast_sub", "_npi_add", "_npi_subtract", "add_n"}
FACTORS = {"_mul_scalar", "_div_scalar", "_npi_multiply_scalar", "_npi_true_divide_scalar"}
ALIKE = FACTORS | {
    "_plus_scalar", "_minus_scalar", "_rminus_scalar", "_npi_add_scalar", "_npi_subtract_scalar",
    "_npi_rsubtract_scalar", "negative", "_npi_negative", "Reshape", "_np_reshape", "expand_dims", "squeeze",
    "_np_squeeze", "Cast", "amp_cast", "_copyto", "_np_copy", "identity", "_copy",
}  # fmt: skip
STACKS = {"stack", "Concat", "concat", "_npi_stack", "_npi_concatenate"}
PRODUCTS = {"elemwise_mul", "broadcast_mul", "_npi_multiply"}
LINEAR = SUMS | TERMS | ALIKE | STACKS | PRODUCTS  # through which a mean below stays one
MASKS = {"_contrib_boolean_mask", "_npi_boolean_mask"}
TAKES = {"take", "_npi_take"}
# Of a number by itself: a term that is made of nothing else has no layer in it
ELEMENTWISE = LINEAR | MEANS | QUOTIENTS | {
    "square", "_npi_square", "sqrt", "_npi_sqrt", "abs", "_npi_absolute", "exp", "_npi_exp", "log", "_npi_log", "log1p",
    "_power_scalar", "_npi_power_scalar", "_rpower_scalar", "smooth_l1", "relu", "sigmoid", "softrelu", "Activation",
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
        """Whether a sum or a mean is that of each sample, as Gluon's losses make it: where it is one number there is
        one sample.
        """
        axes = re.findall(r"-?\d+", self.attributes.get("axis", ""))
        return self.op in SUMS | MEANS and (
            self.attributes.get("exclude") == "True" or (bool(axes) and "0" not in axes)
        )


class Recorded:
    """Of one array that is differentiated; `several`: it has more than one number."""

    def __init__(self, head: Any) -> None:
        graph = json.loads(autograd.get_symbol(head).tojson())
        self.nodes = [
            Node(n["op"], n["name"], n.get("attrs") or {}, tuple(each[0] for each in n["inputs"]))
            for n in graph["nodes"]
        ]
        self.top: int = graph["heads"][0][0]
        self.several = head.size > 1

    @property
    def kinds(self) -> set[str]:
        """One with several numbers has one for each sample, unless these are seen to be means or quotients."""
        if not self.several:
            return self._kinds(self.top)
        if self._divided[self.top]:
            return {DIVIDED}
        return {MEAN if self._averages[self.top] else PENALTY if self._is_penalty(self.top) else EACH}

    @property
    def factors(self) -> set[tuple[str, str]]:
        """(operator, number) of all that multiplies or divides the loss as a whole, or one of its terms."""
        found, below, seen = set[tuple[str, str]](), [self.top], set[int]()
        while below:
            if (at := below.pop()) in seen:
                continue
            seen.add(at)
            node = self.nodes[at]
            if node.op in FACTORS:
                found.add((node.op, node.attributes.get("scalar", "")))
            if node.op in LINEAR | MEANS:
                below += node.inputs
            elif node.op in QUOTIENTS:
                below += node.inputs[:1]
        return found

    @cached_property
    def _data(self) -> list[bool]:
        """Of each node: whether it depends on anything but weights. Inputs come before what is made of them."""
        found = list[bool]()
        for node in self.nodes:  # what has a gradient of its own is called var
            variable = node.op == "null" and not node.name.startswith("var")
            found.append(variable or any(found[i] for i in node.inputs))
        return found

    @cached_property
    def _weights(self) -> list[bool]:
        found = list[bool]()
        for node in self.nodes:
            found.append(node.name.startswith("var") if node.op == "null" else any(found[i] for i in node.inputs))
        return found

    @cached_property
    def _elementwise(self) -> list[bool]:
        found = list[bool]()
        for node in self.nodes:
            found.append(node.op == "null" or (node.op in ELEMENTWISE and all(found[i] for i in node.inputs)))
        return found

    @cached_property
    def _averages(self) -> list[bool]:
        """Whether a mean over the batch is in it as a factor."""
        found = list[bool]()
        for node, data in zip(self.nodes, self._data, strict=True):
            below = any(found[i] for i in node.inputs) and (node.op in LINEAR or (node.op in MEANS and node.of_each))
            found.append(below or (data and node.is_mean))
        return found

    @cached_property
    def _totals(self) -> list[bool]:
        """Whether it is a sum or a mean over the batch of what follows from data alone: something that is counted."""
        found = list[bool]()
        for at, node in enumerate(self.nodes):
            counts = node.op in SUMS | MEANS and not node.of_each and self._data[at] and not self._weights[at]
            below = any(found[i] for i in node.inputs) and (node.op in ELEMENTWISE)
            found.append(counts or below)
        return found

    @cached_property
    def _divided(self) -> list[bool]:
        """Whether it is divided by such."""
        found = list[bool]()
        for node in self.nodes:
            here = node.op in QUOTIENTS and len(node.inputs) > 1 and self._totals[node.inputs[1]]
            below = any(found[i] for i in node.inputs) and (node.op in LINEAR or (node.op in MEANS and node.of_each))
            found.append(here or below)
        return found

    def _kinds(self, at: int) -> set[str]:
        node = self.nodes[at]
        if not self._data[at]:
            return {WEIGHTS}
        if node.is_mean:
            return {CHOSEN if self._chooses(node.inputs[0]) else MEAN}
        if node.op in SUMS | MEANS:
            if self._divided[at]:
                return {DIVIDED}
            if self._averages[at]:
                return {MEAN}
            return {PENALTY if self._is_penalty(at) else SUM}
        if node.op in QUOTIENTS:
            return {DIVIDED}
        if node.op in TERMS:
            return set[str]().union(*map(self._kinds, node.inputs))
        return self._kinds(node.inputs[0]) if node.op in ALIKE and node.inputs else {UNKNOWN}

    def _is_penalty(self, at: int) -> bool:
        """Of weights around a start, or that are drawn: in the record the arrays that these take look as data do."""
        return self._elementwise[at] and self._weights[at]

    def _chooses(self, at: int) -> bool:
        """Whether samples or places have been chosen below, by a mask or by their numbers."""
        below, seen = [at], set[int]()
        while below:
            if (number := below.pop()) not in seen:
                seen.add(number)
                below += self.nodes[number].inputs
        return any(self.nodes[number].op in MASKS or self._takes_some(self.nodes[number]) for number in seen)

    def _takes_some(self, node: Node) -> bool:
        """Of what the net made of the batch. A table that is looked up (weights alone) has a row for each sample."""
        first = node.op in TAKES and node.attributes.get("axis", "0") == "0"
        return first and self._data[node.inputs[0]] and self._weights[node.inputs[0]]
