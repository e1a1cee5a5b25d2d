"""Find the kind of a loss: a sum over the samples, their mean, or a value to which shares of a batch do not add up."""

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
    """One array that is differentiated.

    `several`: it has more than one number. `hybrids`: see `Graph`.
    """

    def __init__(self, head: Any, hybrids: Mapping[str, Any] | None = None) -> None:
        self.graph = Graph(head, hybrids or {})
        self._nodes, self._top = self.graph.nodes, self.graph.top
        self.several = head.size > 1

    @property
    def kinds(self) -> set[str]:
        if any(self._nodes[index].normalises for index in self.graph.below(self._top)):
            return {NORMALISED}
        if self._opaque[self._top]:
            return {UNKNOWN}
        if not self.several:
            return self._kinds_of_number(self._top)
        return self._kinds_of_sum(self._top) or {EACH}

    # ---- properties of the nodes

    def _linear_inputs(self, node: Node) -> Sequence[int]:
        """Return the inputs of the node whose mean stays a factor of the node."""
        return node.inputs if node.op in LINEAR or (node.op in MEANS and node.within_samples) else ()

    @cached_property
    def _opaque(self) -> list[bool]:
        """For each node, whether an operator with its own backward pass is a term of it.

        Such operators inside a net's layers do not count.
        """
        return self.graph.reaching(
            lambda index, node: node.op in OWN_BACKWARD and self.graph.weights[index],
            lambda node: node.inputs if node.op in LINEAR | MEANS else (),
        )

    @cached_property
    def _has_mean(self) -> list[bool]:
        return self.graph.reaching(lambda index, node: node.is_mean and self.graph.data[index], self._linear_inputs)

    @cached_property
    def _reduced(self) -> list[bool]:
        """For each node, whether a sum or a mean over the batch is a factor of it."""
        return self.graph.reaching(self.graph.reduces, self._linear_inputs)

    @cached_property
    def _counted(self) -> list[bool]:
        """For each node, whether it is elementwise in a value over the batch: a count, or a largest number.

        In a loss with several numbers, a reduction along named axes without weights does not count. Such a reduction is
        a length, and its axis is time.
        """
        return self.graph.reaching(
            lambda index, node: (
                self.graph.reduces(index, node)
                and not (self.several and node.names_axes and not self.graph.weights[index])
            ),
            lambda node: node.inputs if node.op in ELEMENTWISE else (),
        )

    @cached_property
    def _divided(self) -> list[bool]:
        """For each node, whether it is divided by a counted node."""
        return self.graph.reaching(
            lambda index, node: node.op in RATIOS and len(node.inputs) > 1 and self._counted[node.inputs[1]],
            self._linear_inputs,
        )

    @cached_property
    def _curved(self) -> list[bool]:
        """For each node, whether it depends on a value over the batch that depends on the weights."""
        return self.graph.reaching(
            lambda index, node: self.graph.reduces(index, node) and self.graph.weights[index], lambda node: node.numbers
        )

    def _own_kind(self, index: int) -> str:
        """Return PENALTY for weights and arrays without a layer between them, EACH otherwise.

        A penalty may compare weights with initial or random values, which look like data in the record.
        """
        return PENALTY if self.graph.elementwise[index] and self.graph.weights[index] else EACH

    def _terms(self, index: int, kinds: set[str]) -> list[int]:
        """Return the nodes whose sum the node is.

        The search is iterative, because a script may add up a thousand losses one by one.
        """

        def parts(node: Node) -> Sequence[int]:
            return node.inputs if node.op in kinds else node.inputs[:1] if node.op in ALIKE else ()

        return [number for number in self.graph.below(index, parts) if not parts(self._nodes[number])]

    # ---- kinds

    def _kinds_of_number(self, index: int) -> set[str]:
        node = self._nodes[index]
        if not self.graph.weights[index]:
            return set()  # a constant, such as the 0 with which a script begins to add up
        if not self.graph.data[index]:
            return {WEIGHTS}
        if node.op in MEANS and not node.excludes:  # any axis, as one number is left
            return self._kinds_of_mean(node.inputs[0])
        if node.op in MEANS:
            return {SUM}  # of one sample
        if node.op in SUMS:
            below = self._kinds_of_sum(node.inputs[0])
            return below - {EACH} | {SUM} if not below or EACH in below else below
        if node.op in RATIOS and self._is_of_no_batch(node.inputs[-1]):
            return self._kinds_of_number(node.inputs[0])
        if node.op in QUOTIENTS:
            return {DIVIDED}
        if node.op in TERMS | ALIKE and node.inputs:
            return set[str]().union(*map(self._kinds_of_number, self._terms(index, TERMS)))
        if node.op in PRODUCTS and len(losses := [i for i in node.inputs if self._reduced[i]]) == 1:
            return self._kinds_of_number(losses[0])
        return {CURVED if self._curved[index] else UNKNOWN}

    def _is_of_no_batch(self, index: int) -> bool:
        """Whether the node is independent of the batch: a length, or an array of the script.

        The workers compare such arrays (`Factors`).
        """
        node = self._nodes[index]
        is_array = node.op == "null" and not self.graph.weights[index]
        return is_array or not (self.graph.data[index] or self.graph.weights[index])

    def _kinds_of_sum(self, index: int) -> set[str]:
        """Return the kinds of a sum over the node."""
        below = self._kinds_of_array(index)
        if DIVIDED in below:
            return {DIVIDED}
        if below & {EACH, PENALTY} and below & {ALL, SUM_ALONG, MEAN, MEAN_ALONG}:
            return {MIXED}
        return {{ALL: SUM, SUM_ALONG: SUM, MEAN_ALONG: UNKNOWN}.get(kind, kind) for kind in below}

    def _kinds_of_mean(self, index: int) -> set[str]:
        """Return the kinds of a mean over the node."""
        kinds_below = self._kinds_of_array(index)
        if DIVIDED in kinds_below:
            return {DIVIDED}
        if CURVED in kinds_below:
            return {CURVED}
        if kinds_below & {ALL, SUM_ALONG}:
            return {UNKNOWN} if kinds_below == {SUM_ALONG} else {SUM} if kinds_below <= {ALL, SUM_ALONG} else {MIXED}
        below = [self._nodes[number] for number in self.graph.below(index)]
        if any(node.op in MASKS for node in below):
            return {CHOSEN}
        return {PICKED if any(self._picks(node) for node in below) else MEAN}

    def _picks(self, node: Node) -> bool:
        """Whether the node takes some of the net's results for the batch.

        A lookup in a table of weights alone does not count, because it gives a row for each sample.
        """
        first = node.op in TAKES | PICKS and node.attributes.get("axis", "0") == "0"
        return first and self.graph.data[node.inputs[0]] and self.graph.weights[node.inputs[0]]

    def _kinds_of_array(self, index: int) -> set[str]:
        """Return the kinds of a node with several numbers.

        The numbers are the samples' own, except for terms that are means or sums (`ALL`) over the batch.
        """
        node = self._nodes[index]
        if not self.graph.data[index] or not self.graph.weights[index]:
            return set()  # the node counts with each sample also in one process, or is a constant
        if node.op in TERMS | STACKS | ALIKE and node.inputs:
            return set[str]().union(*map(self._kinds_of_array, self._terms(index, TERMS | STACKS)))
        if node.op in PRODUCTS:
            own = [self._kinds_of_array(i) for i in node.inputs if self.graph.weights[i]]
            counted = ({ALL} for i in node.inputs if not self.graph.weights[i] and self._counted[i])
            return set[str]().union(*own, *counted) or {self._own_kind(index)}
        if node.op in RATIOS and len(node.inputs) > 1:
            counts = self._counted[node.inputs[1]]
            return {DIVIDED} if counts else self._kinds_of_array(node.inputs[0]) or {self._own_kind(index)}
        if node.op in REDUCTIONS:
            below = self._has_mean[node.inputs[0]]
            if self._has_mean[index]:
                return {MEAN_ALONG if node.along_first and not below else MEAN}
            if self.graph.reduces(index, node):
                if node.op not in SUMS:
                    return {CURVED}
                return {self._own_kind(index)} - {EACH} or {SUM_ALONG if node.along_first else ALL}
            return {DIVIDED if self._divided[index] else self._own_kind(index)}
        return {self._own_kind(index)}
