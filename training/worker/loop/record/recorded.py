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
    CALL,
    DOTS,
    ELEMENTWISE,
    LENGTHS,
    LIKE,
    MEANS,
    REDUCTIONS,
    SHAPES,
    STACKS_BESIDE,
)


@dataclass(frozen=True)
class Node:
    op: str
    name: str
    attributes: dict[str, str]
    inputs: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Inputs whose values affect the node's; of the others only the shape does."""
        if self.op in SHAPES | {"zeros_like", "ones_like"}:
            return ()
        return self.inputs[:1] if self.op in LIKE else self.inputs

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over the batch."""
        return self.op in MEANS and not self.of_each

    @property
    def of_each(self) -> bool:
        """Whether it is a reduction within each sample, as in Gluon's losses.

        The first axis is taken for the batch's. With NumPy's names, an axis of () reduces nothing, as in Gluon's losses
        of one number per sample; with the others it reduces all.
        """
        axis = self.attributes.get("axis", "")
        axes = re.findall(r"-?\d+", axis)
        reduces_nothing = axis == "()" and self.op.startswith("_np")
        return self.op in REDUCTIONS and (self.excludes or reduces_nothing or (bool(axes) and "0" not in axes))

    @property
    def along(self) -> bool:
        """Whether it names axes."""
        return bool(re.search(r"\d", self.attributes.get("axis", "")))

    @property
    def along_first(self) -> bool:
        """Whether it reduces only the first axis: that of the batch, or of time where that comes first."""
        return self.op in REDUCTIONS and not self.excludes and _is_first(self.attributes.get("axis", ""))

    @property
    def excludes(self) -> bool:
        """Whether it reduces all axes except those that it names."""
        return self.attributes.get("exclude") == "True"

    @property
    def normalises(self) -> bool:
        """Whether its backward pass divides by a count over the batch, whatever its output is used for."""
        return self.attributes.get("normalization") in ("valid", "batch")


def _inputs(node: Node) -> Sequence[int]:
    return node.inputs


class Graph:
    """Record of one array; inputs of a node come before it."""

    def __init__(self, head: Any, hybrids: Mapping[str, Any]) -> None:
        """Read the record of `head`.

        `hybrids`: symbols of called hybridized blocks, by the calls' names in the record; their operators replace the
        calls.
        """
        self.nodes = list[Node]()
        self._hybrids = hybrids
        (self.top,) = self._add(json.loads(autograd.get_symbol(head).tojson()), None)

    def _add(self, graph: Any, inputs: Sequence[int] | None) -> list[int]:
        """Add a graph's nodes; returns the nodes of its outputs. `inputs`: nodes of its inputs if it is a block's."""
        outputs = list[Sequence[int]]()  # for each node of the graph, our nodes of its outputs
        given = iter(inputs or ())
        for node in graph["nodes"]:
            below = tuple(_output(outputs[at], which) for at, which, *_ in node["inputs"])
            if node["op"] in LENGTHS and self.nodes[below[0]].op in SHAPES and _begins(node) != 0:
                below = ()  # not the batch's size: it is equal in all workers' shares
            if inputs is not None and node["op"] == "null":
                outputs.append([next(given)])
            elif node["op"] == CALL and node["name"] in self._hybrids:
                outputs.append(self._add(json.loads(self._hybrids[node["name"]].tojson()), below))
            else:
                attributes = node.get("attrs") or {}
                if node["op"] in REDUCTIONS and _is_first(attributes.get("axis", "")) and self._is_stack(below[0]):
                    attributes = {**attributes, "axis": "1"}  # of several losses, within each sample
                self.nodes.append(Node(node["op"], node["name"], attributes, below))
                outputs.append([len(self.nodes) - 1])
        return [_output(outputs[at], which) for at, which, *_ in graph["heads"]]

    def _is_stack(self, at: int) -> bool:
        return self.nodes[at].op in STACKS_BESIDE and _is_first(self.nodes[at].attributes.get("axis", "0"))

    def where(self, begins: Callable[[int, Node], bool], through: Callable[[Node], Sequence[int]]) -> list[bool]:
        """For each node, whether `begins` holds for it or for a node that it reaches by the inputs that `through`
        gives.
        """
        marks = list[bool]()
        for at, node in enumerate(self.nodes):
            marks.append(begins(at, node) or any(marks[i] for i in through(node)))
        return marks

    @cached_property
    def data(self) -> list[bool]:
        """Whether each node depends on anything but weights, which have a gradient of their own and are called var."""
        return self.where(lambda at, node: node.op == "null" and not node.name.startswith("var"), _inputs)

    @cached_property
    def weights(self) -> list[bool]:
        return self.where(lambda at, node: node.op == "null" and node.name.startswith("var"), lambda node: node.numbers)

    @cached_property
    def elementwise(self) -> list[bool]:
        """Whether each node is made of weights and arrays without a layer between them."""
        marks = list[bool]()
        for node in self.nodes:
            simple = node.op in ELEMENTWISE or (node.op in DOTS and not self.data[len(marks)])
            marks.append(node.op == "null" or (simple and all(marks[i] for i in node.inputs)))
        return marks

    def reduces(self, at: int, node: Node) -> bool:
        """Whether the node is over the batch; the number of its samples is, too."""
        return (node.op in SHAPES or (node.op in REDUCTIONS and not node.of_each)) and self.data[at]

    def below(self, at: int, inputs: Callable[[Node], Sequence[int]] = _inputs) -> list[int]:
        """The node and all that it is computed from, by way of these `inputs` of each node."""
        waiting, seen = [at], set[int]()
        while waiting:
            if (number := waiting.pop()) not in seen:
                seen.add(number)
                waiting += inputs(self.nodes[number])
        return sorted(seen)


def _output(outputs: Sequence[int], which: int) -> int:
    """Node of an output: an operator is one node for all of its outputs, while several nodes make a block's."""
    return outputs[which] if len(outputs) > 1 else outputs[0]


def _is_first(axis: str) -> bool:
    return re.findall(r"-?\d+", axis) == ["0"]


def _begins(node: Any) -> int | None:
    """First place that a slice takes, None if it does not say."""
    match = re.search(r"-?\d+", node.get("attrs", {}).get("begin", ""))
    return int(match.group()) if match else None
