"""MXNet's record of an array that is differentiated: a graph of operators on weights and other arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd  # isort: skip
from dyntrain.training.worker.loop.record.operators import (
    DOTS,
    ELEMENTWISE,
    HYBRID_CALL,
    LENGTHS,
    MEANS,
    REDUCTIONS,
    SHAPE_LIKE,
    SHAPES,
    STACKS_BESIDE,
)


@dataclass(frozen=True)
class Node:
    op: str  # the operator's name; "null" for an array
    name: str  # of the array, or of the operator's call
    attributes: dict[str, str]
    inputs: tuple[int, ...]  # indices of nodes

    @property
    def value_inputs(self) -> tuple[int, ...]:
        """The node's inputs whose values affect the node's values; an input of which only the shape matters is left
        out.
        """
        if self.op in SHAPES | {"zeros_like", "ones_like"}:
            return ()
        return self.inputs[:1] if self.op in SHAPE_LIKE else self.inputs

    @property
    def is_mean(self) -> bool:
        """Whether the node is a mean over the batch."""
        return self.op in MEANS and not self.reduces_within_samples

    @property
    def reduces_within_samples(self) -> bool:
        """Whether the node is a reduction within each sample, as in Gluon's losses.

        The first axis is assumed to be the batch. For operators of MXNet's NumPy interface, an axis of () reduces
        nothing, as in Gluon's losses of one number per sample. For operators outside of the NumPy interface, an axis of
        () reduces all axes.
        """
        axis = self.attributes.get("axis", "")
        axes = re.findall(r"-?\d+", axis)
        reduces_nothing = axis == "()" and self.op.startswith("_np")
        return self.op in REDUCTIONS and (
            self.excludes_named_axes or reduces_nothing or (bool(axes) and "0" not in axes)
        )

    @property
    def has_numbered_axes(self) -> bool:
        """Whether the node's operator has an `axis` argument that contains numbers."""
        return bool(re.search(r"\d", self.attributes.get("axis", "")))

    @property
    def reduces_first_axis(self) -> bool:
        """Whether the node reduces only the first axis, which is the axis of the batch or of time."""
        return self.op in REDUCTIONS and not self.excludes_named_axes and _is_axis_0(self.attributes.get("axis", ""))

    @property
    def excludes_named_axes(self) -> bool:
        """Whether the node reduces all axes except the axes in its `axis` argument."""
        return self.attributes.get("exclude") == "True"

    @property
    def divides_backward(self) -> bool:
        """Whether the node's backward pass divides by a count over the batch, however its output is used."""
        return self.attributes.get("normalization") in ("valid", "batch")


def _inputs(node: Node) -> Sequence[int]:
    return node.inputs


class Graph:
    """MXNet's record of one array as a list of nodes, in which each node comes after its inputs."""

    def __init__(self, head: Any, hybrids: Mapping[str, Any]) -> None:
        """Read MXNet's record of how the array `head` was computed.

        `hybrids`: symbols of called hybridized blocks, by the calls' names in the record. The graph has the operators
        of a block's symbol in place of the block's call.
        """
        self.nodes = list[Node]()
        self._hybrids = hybrids
        (self.top,) = self._add_graph(json.loads(autograd.get_symbol(head).tojson()), None)

    def _add_graph(self, graph: Any, inputs: Sequence[int] | None) -> list[int]:
        """Add the nodes of an MXNet graph to `nodes`; returns the indices of the nodes that are the graph's outputs.

        `inputs`: nodes of the graph's inputs if the graph belongs to a hybridized block.
        """
        outputs = list[Sequence[int]]()  # for each node of the graph, the numbers of its output nodes
        input_nodes = iter(inputs or ())
        for node in graph["nodes"]:
            node_inputs = tuple(_output(outputs[index], output_number) for index, output_number, *_ in node["inputs"])
            if node["op"] in LENGTHS and self.nodes[node_inputs[0]].op in SHAPES and _slice_start(node) != 0:
                node_inputs = ()  # a length other than the batch's is equal in all workers' shares
            if inputs is not None and node["op"] == "null":
                outputs.append([next(input_nodes)])
            elif node["op"] == HYBRID_CALL and node["name"] in self._hybrids:
                outputs.append(self._add_graph(json.loads(self._hybrids[node["name"]].tojson()), node_inputs))
            else:
                attributes = node.get("attrs") or {}
                if (
                    node["op"] in REDUCTIONS
                    and _is_axis_0(attributes.get("axis", ""))
                    and self._is_stack(node_inputs[0])
                ):
                    attributes = {**attributes, "axis": "1"}  # a reduction over stacked losses, within each sample
                self.nodes.append(Node(node["op"], node["name"], attributes, node_inputs))
                outputs.append([len(self.nodes) - 1])
        return [_output(outputs[index], output_number) for index, output_number, *_ in graph["heads"]]

    def _is_stack(self, index: int) -> bool:
        return self.nodes[index].op in STACKS_BESIDE and _is_axis_0(self.nodes[index].attributes.get("axis", "0"))

    def dependent_flags(
        self, begins: Callable[[int, Node], bool], through: Callable[[Node], Sequence[int]]
    ) -> list[bool]:
        """Return for each node whether `begins` is true for the node or for a node from which it is computed.

        `through`: function that returns those inputs of a node that are searched.
        """
        flags = list[bool]()
        for index, node in enumerate(self.nodes):
            flags.append(begins(index, node) or any(flags[input_index] for input_index in through(node)))
        return flags

    @cached_property
    def data_dependence(self) -> list[bool]:
        """For each node, whether the node depends on arrays other than weights. In MXNet's record, names of weights
        begin with `var`.
        """
        return self.dependent_flags(lambda index, node: node.op == "null" and not node.name.startswith("var"), _inputs)

    @cached_property
    def weight_dependence(self) -> list[bool]:
        return self.dependent_flags(
            lambda index, node: node.op == "null" and node.name.startswith("var"), lambda node: node.value_inputs
        )

    @cached_property
    def elementwise_flags(self) -> list[bool]:
        """For each node, whether elementwise operators compute the node from weights and arrays, without a layer."""
        flags = list[bool]()
        for node in self.nodes:
            no_layer = node.op in ELEMENTWISE or (node.op in DOTS and not self.data_dependence[len(flags)])
            flags.append(node.op == "null" or (no_layer and all(flags[input_index] for input_index in node.inputs)))
        return flags

    def reduces(self, index: int, node: Node) -> bool:
        """Whether the node is a reduction over the batch, or a length such as the number of samples."""
        return (
            node.op in SHAPES or (node.op in REDUCTIONS and not node.reduces_within_samples)
        ) and self.data_dependence[index]

    def nodes_below(self, index: int, inputs: Callable[[Node], Sequence[int]] = _inputs) -> list[int]:
        """Return the node and all nodes from which it is computed, found by following `inputs(node)` of each node."""
        unvisited, seen = [index], set[int]()
        while unvisited:
            if (node_index := unvisited.pop()) not in seen:
                seen.add(node_index)
                unvisited += inputs(self.nodes[node_index])
        return sorted(seen)


def _output(outputs: Sequence[int], output_number: int) -> int:
    """Return the node of the output with the number `output_number`; an operator has one node for all outputs, a block
    may have several.
    """
    return outputs[output_number] if len(outputs) > 1 else outputs[0]


def _is_axis_0(axis: str) -> bool:
    return re.findall(r"-?\d+", axis) == ["0"]


def _slice_start(node: Any) -> int | None:
    """Return the index at which a slice operator begins, or None if the operator gives no begin."""
    begin_match = re.search(r"-?\d+", node.get("attrs", {}).get("begin", ""))
    return int(begin_match.group()) if begin_match else None
