"""Find the kind of a loss: a sum over the samples, their mean, or a value for a batch that is not the sum of the values
for its shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from dyntrain.training.worker.loop.record.operators import (
    ALIKE,
    ELEMENTWISE,
    LINEAR,
    MASKS,
    MEANS,
    OWN_BACKWARD,
    PICKS,
    PRODUCTS,
    QUOTIENTS,
    RATIOS,
    REDUCTIONS,
    STACKS,
    SUMS,
    TAKES,
    TERMS,
)
from dyntrain.training.worker.loop.record.recorded import Graph, Node

SUM, MEAN, WEIGHTS, DIVIDED, UNKNOWN = "a sum", "a mean", "weights alone", "a quotient", "unknown"
EACH, CHOSEN = "a number for each sample", "a mean over chosen places"
PICKED = "a mean over places by their numbers"
PENALTY = "a sum of weights and arrays, through no layer"
MIXED, CURVED = "samples that meet the batch", "a function of the batch"
NORMALISED = "divided in its backward pass"
ALL, SUM_ALONG, MEAN_ALONG = "all", "a sum along the first axis", "a mean along the first axis"


class Loss:
    """One array that a script differentiates.

    `several`: whether the array has more than one number. `hybrids`: see `Graph`.
    """

    def __init__(self, head: Any, hybrids: Mapping[str, Any] | None = None) -> None:
        self.graph = Graph(head, hybrids or {})
        self._nodes, self._top = self.graph.nodes, self.graph.top
        self.several = head.size > 1

    @property
    def kinds(self) -> set[str]:
        if any(self._nodes[index].divides_backward for index in self.graph.nodes_below(self._top)):
            return {NORMALISED}
        if self._own_backward_flags[self._top]:
            return {UNKNOWN}
        if not self.several:
            return self._kinds_of_number(self._top)
        return self._kinds_of_sum(self._top) or {EACH}

    # ---- properties of the nodes

    def _linear_inputs(self, node: Node) -> Sequence[int]:
        """Return those inputs of the node from which a factor, such as a mean over the batch, carries over
        to the node.
        """
        return node.inputs if node.op in LINEAR or (node.op in MEANS and node.reduces_within_samples) else ()

    @cached_property
    def _own_backward_flags(self) -> list[bool]:
        """For each node, whether one of its terms is an operator that defines its own backward pass.

        Operators with their own backward pass inside a net's layers do not count.
        """
        return self.graph.dependent_flags(
            lambda index, node: node.op in OWN_BACKWARD and self.graph.weight_dependence[index],
            lambda node: node.inputs if node.op in LINEAR | MEANS else (),
        )

    @cached_property
    def _mean_flags(self) -> list[bool]:
        return self.graph.dependent_flags(
            lambda index, node: node.is_mean and self.graph.data_dependence[index], self._linear_inputs
        )

    @cached_property
    def _reduced_flags(self) -> list[bool]:
        """For each node, whether a sum or a mean over the batch is a factor of the node."""
        return self.graph.dependent_flags(self.graph.reduces, self._linear_inputs)

    @cached_property
    def _batch_value_flags(self) -> list[bool]:
        """For each node, whether elementwise operators compute the node from a value over the batch, such as a count.

        In a loss with several numbers, a reduction of data along numbered axes does not count, because the result is
        the length of each sequence.
        """
        return self.graph.dependent_flags(
            lambda index, node: (
                self.graph.reduces(index, node)
                and not (self.several and node.has_numbered_axes and not self.graph.weight_dependence[index])
            ),
            lambda node: node.inputs if node.op in ELEMENTWISE else (),
        )

    @cached_property
    def _count_division_flags(self) -> list[bool]:
        """For each node, whether it or one of its factors is divided by a value over the batch, such as a count."""
        return self.graph.dependent_flags(
            lambda index, node: node.op in RATIOS and len(node.inputs) > 1 and self._batch_value_flags[node.inputs[1]],
            self._linear_inputs,
        )

    @cached_property
    def _curved_flags(self) -> list[bool]:
        """For each node, whether the node depends on a sum, mean or other value over the batch that depends on the
        weights.
        """
        return self.graph.dependent_flags(
            lambda index, node: self.graph.reduces(index, node) and self.graph.weight_dependence[index],
            lambda node: node.value_inputs,
        )

    def _own_kind(self, index: int) -> str:
        """Return PENALTY if the node combines weights and arrays element by element, without a layer; otherwise EACH.

        A penalty term may compare weights with their initial values, which look like data in MXNet's record.
        """
        return PENALTY if self.graph.elementwise_flags[index] and self.graph.weight_dependence[index] else EACH

    def _terms(self, index: int, kinds: set[str]) -> list[int]:
        """Return the nodes that the node at `index` adds up, also through further additions.

        The search is not recursive, because a script may add up a thousand losses one by one.
        """

        def summands(node: Node) -> Sequence[int]:
            return node.inputs if node.op in kinds else node.inputs[:1] if node.op in ALIKE else ()

        return [
            below_index
            for below_index in self.graph.nodes_below(index, summands)
            if not summands(self._nodes[below_index])
        ]

    # ---- kinds

    def _kinds_of_number(self, index: int) -> set[str]:
        node = self._nodes[index]
        if not self.graph.weight_dependence[index]:
            return set()  # a constant, such as the 0 with which a script begins to add up
        if not self.graph.data_dependence[index]:
            return {WEIGHTS}
        if node.op in MEANS and not node.excludes_named_axes:  # any axis, as one number is left
            return self._kinds_of_mean(node.inputs[0])
        if node.op in MEANS:
            return {SUM}  # of one sample
        if node.op in SUMS:
            kinds_below = self._kinds_of_sum(node.inputs[0])
            return kinds_below - {EACH} | {SUM} if not kinds_below or EACH in kinds_below else kinds_below
        if node.op in RATIOS and self._is_batch_independent(node.inputs[-1]):
            return self._kinds_of_number(node.inputs[0])
        if node.op in QUOTIENTS:
            return {DIVIDED}
        if node.op in TERMS | ALIKE and node.inputs:
            return set[str]().union(*map(self._kinds_of_number, self._terms(index, TERMS)))
        if (
            node.op in PRODUCTS
            and len(reduced_inputs := [input_index for input_index in node.inputs if self._reduced_flags[input_index]])
            == 1
        ):
            return self._kinds_of_number(reduced_inputs[0])
        return {CURVED if self._curved_flags[index] else UNKNOWN}

    def _is_batch_independent(self, index: int) -> bool:
        """Whether the node's value does not depend on the batch, such as that of a length or of an array that the
        script made.

        The workers compare the values of arrays that the script made (see `LossFactors`).
        """
        node = self._nodes[index]
        is_array = node.op == "null" and not self.graph.weight_dependence[index]
        return is_array or not (self.graph.data_dependence[index] or self.graph.weight_dependence[index])

    def _kinds_of_sum(self, index: int) -> set[str]:
        """Return the kinds of a loss that is the sum over the node's numbers."""
        kinds_below = self._kinds_of_array(index)
        if DIVIDED in kinds_below:
            return {DIVIDED}
        if kinds_below & {EACH, PENALTY} and kinds_below & {ALL, SUM_ALONG, MEAN, MEAN_ALONG}:
            return {MIXED}
        return {{ALL: SUM, SUM_ALONG: SUM, MEAN_ALONG: UNKNOWN}.get(kind, kind) for kind in kinds_below}

    def _kinds_of_mean(self, index: int) -> set[str]:
        """Return the kinds of a loss that is the mean over the node's numbers."""
        kinds_below = self._kinds_of_array(index)
        if DIVIDED in kinds_below:
            return {DIVIDED}
        if CURVED in kinds_below:
            return {CURVED}
        if kinds_below & {ALL, SUM_ALONG}:
            return {UNKNOWN} if kinds_below == {SUM_ALONG} else {SUM} if kinds_below <= {ALL, SUM_ALONG} else {MIXED}
        nodes_below = [self._nodes[node_index] for node_index in self.graph.nodes_below(index)]
        if any(node.op in MASKS for node in nodes_below):
            return {CHOSEN}
        return {PICKED if any(self._selects_by_index(node) for node in nodes_below) else MEAN}

    def _selects_by_index(self, node: Node) -> bool:
        """Whether the node selects some of the net's results for the batch by their indices.

        A lookup in a table of weights (an embedding) does not count, because a lookup gives each sample a row.
        """
        selects_along_batch = node.op in TAKES | PICKS and node.attributes.get("axis", "0") == "0"
        return (
            selects_along_batch
            and self.graph.data_dependence[node.inputs[0]]
            and self.graph.weight_dependence[node.inputs[0]]
        )

    def _kinds_of_array(self, index: int) -> set[str]:
        """Return the kinds of the terms in a node with several numbers.

        Each number belongs to one sample, except in terms that are means or sums (`ALL`) over the batch.
        """
        node = self._nodes[index]
        if not self.graph.data_dependence[index] or not self.graph.weight_dependence[index]:
            return set()  # the node counts with each sample also in one process, or is a constant
        if node.op in TERMS | STACKS | ALIKE and node.inputs:
            return set[str]().union(*map(self._kinds_of_array, self._terms(index, TERMS | STACKS)))
        if node.op in PRODUCTS:
            weight_kinds = [
                self._kinds_of_array(input_index)
                for input_index in node.inputs
                if self.graph.weight_dependence[input_index]
            ]
            counted_kinds = (
                {ALL}
                for input_index in node.inputs
                if not self.graph.weight_dependence[input_index] and self._batch_value_flags[input_index]
            )
            return set[str]().union(*weight_kinds, *counted_kinds) or {self._own_kind(index)}
        if node.op in RATIOS and len(node.inputs) > 1:
            divisor_is_count = self._batch_value_flags[node.inputs[1]]
            return {DIVIDED} if divisor_is_count else self._kinds_of_array(node.inputs[0]) or {self._own_kind(index)}
        if node.op in REDUCTIONS:
            input_has_mean = self._mean_flags[node.inputs[0]]
            if self._mean_flags[index]:
                return {MEAN_ALONG if node.reduces_first_axis and not input_has_mean else MEAN}
            if self.graph.reduces(index, node):
                if node.op not in SUMS:
                    return {CURVED}
                return {self._own_kind(index)} - {EACH} or {SUM_ALONG if node.reduces_first_axis else ALL}
            return {DIVIDED if self._count_division_flags[index] else self._own_kind(index)}
        return {self._own_kind(index)}
