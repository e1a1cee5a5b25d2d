"""What MXNet recorded of an array that is differentiated: a graph of operators, whose inputs are weights and others."""

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
        """Those of its inputs whose numbers are in its own; of the others it has the shape."""
        if self.op in SHAPES | {"zeros_like", "ones_like"}:
            return ()
        return self.inputs[:1] if self.op in LIKE else self.inputs

    @property
    def is_mean(self) -> bool:
        """Over the batch."""
        return self.op in MEANS and not self.of_each

    @property
    def of_each(self) -> bool:
        """Whether a reduction is that of each sample, as Gluon's losses make it; which axis is the batch's is taken to
        be the first. With NumPy's names no axes are none, as in Gluon's losses of one number a sample; else they are
        all.
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
        """Whether it reduces the first axis alone: that of the batch, or of the time where that comes first."""
        return self.op in REDUCTIONS and not self.excludes and _is_first(self.attributes.get("axis", ""))

    @property
    def excludes(self) -> bool:
        """Over all axes but those that are named."""
        return self.attributes.get("exclude") == "True"

    @property
    def normalises(self) -> bool:
        """Whether its backward pass divides by what it counts in the batch, whatever is made of its output."""
        return self.attributes.get("normalization") in ("valid", "batch")


def _inputs(node: Node) -> Sequence[int]:
    return node.inputs


class Graph:
    """Of one array. Its nodes are in an order in which inputs come before what is made of them."""

    def __init__(self, head: Any, hybrids: Mapping[str, Any]) -> None:
        """`hybrids`: symbols of the hybridized blocks that were called, by the names that the calls have in the record;
        their operators stand in the calls' places.
        """
        self.nodes = list[Node]()
        self._hybrids = hybrids
        (self.top,) = self._add(json.loads(autograd.get_symbol(head).tojson()), None)

    def _add(self, graph: Any, inputs: Sequence[int] | None) -> list[int]:
        """Which of the nodes are this graph's outputs. `inputs`: which are its inputs, where it is a block's."""
        outputs = list[Sequence[int]]()  # of each node of the graph: by which of ours its outputs are made
        given = iter(inputs or ())
        for node in graph["nodes"]:
            below = tuple(_output(outputs[at], which) for at, which, *_ in node["inputs"])
            if node["op"] in LENGTHS and self.nodes[below[0]].op in SHAPES and _begins(node) != 0:
                below = ()  # not the batch's: it is the same number in each worker's share
            if inputs is not None and node["op"] == "null":
                outputs.append([next(given)])
            elif node["op"] == CALL and node["name"] in self._hybrids:
                outputs.append(self._add(json.loads(self._hybrids[node["name"]].tojson()), below))
            else:
                attributes = node.get("attrs") or {}
                if node["op"] in REDUCTIONS and _is_first(attributes.get("axis", "")) and self._is_stack(below[0]):
                    attributes = {**attributes, "axis": "1"}  # of several losses, for each sample
                self.nodes.append(Node(node["op"], node["name"], attributes, below))
                outputs.append([len(self.nodes) - 1])
        return [_output(outputs[at], which) for at, which, *_ in graph["heads"]]

    def _is_stack(self, at: int) -> bool:
        return self.nodes[at].op in STACKS_BESIDE and _is_first(self.nodes[at].attributes.get("axis", "0"))

    def where(self, begins: Callable[[int, Node], bool], through: Callable[[Node], Sequence[int]]) -> list[bool]:
        """Of each node, whether it `begins` there, or in one of those inputs that are looked `through`."""
        marks = list[bool]()
        for at, node in enumerate(self.nodes):
            marks.append(begins(at, node) or any(marks[i] for i in through(node)))
        return marks

    @cached_property
    def data(self) -> list[bool]:
        """Whether it depends on anything but weights: these have a gradient of their own, and are called var."""
        return self.where(lambda at, node: node.op == "null" and not node.name.startswith("var"), _inputs)

    @cached_property
    def weights(self) -> list[bool]:
        return self.where(lambda at, node: node.op == "null" and node.name.startswith("var"), lambda node: node.numbers)

    @cached_property
    def elementwise(self) -> list[bool]:
        """Whether it is made of weights and arrays without a layer between them."""
        marks = list[bool]()
        for node in self.nodes:
            simple = node.op in ELEMENTWISE or (node.op in DOTS and not self.data[len(marks)])
            marks.append(node.op == "null" or (simple and all(marks[i] for i in node.inputs)))
        return marks

    def reduces(self, at: int, node: Node) -> bool:
        """Over the batch; how many samples it has is such a number, too."""
        return (node.op in SHAPES or (node.op in REDUCTIONS and not node.of_each)) and self.data[at]

    def below(self, at: int, inputs: Callable[[Node], Sequence[int]] = _inputs) -> list[int]:
        """All that it is made of, and itself, by way of these `inputs` of each."""
        waiting, seen = [at], set[int]()
        while waiting:
            if (number := waiting.pop()) not in seen:
                seen.add(number)
                waiting += inputs(self.nodes[number])
        return sorted(seen)


def _output(outputs: Sequence[int], which: int) -> int:
    """An operator is one node whatever it puts out; a block's outputs are made by several."""
    return outputs[which] if len(outputs) > 1 else outputs[0]


def _is_first(axis: str) -> bool:
    return re.findall(r"-?\d+", axis) == ["0"]


def _begins(node: Any) -> int | None:
    """The first place that a slice takes; None: it does not say."""
    match = re.search(r"-?\d+", node.get("attrs", {}).get("begin", ""))
    return int(match.group()) if match else None
