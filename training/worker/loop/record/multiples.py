"""Find in MXNet's record of a loss the factors of its terms, and other numbers in its terms. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from dyntrain.training.worker.loop.record.operators import (
    DIVISIONS,
    LINEAR,
    MEANS,
    MULTIPLICATIONS,
    PRODUCTS,
    PROPORTIONAL,
    RATIOS,
)
from dyntrain.training.worker.loop.record.recorded import Graph, Node

MOST_FACTORS = 1024  # most factors of one node
NUMBER_ATTRIBUTES = ("scalar", "a_min", "a_max")  # attributes of operators that a script sets


def multiples(
    graph: Graph, head_gradient: float = 1.0, constants: Mapping[str, float] | None = None
) -> set[tuple[str, str]]:
    """Return the factors of a loss's terms, and other numbers in the terms, as (operator, number to five digits).

    The operator beside a factor is the operator whose result is multiplied by the factor. A division and a
    multiplication by the same number cancel out. `head_gradient`: gradient with which the backward pass begins.
    `constants`: values of the arrays that have one number, by their names in the record. Terms whose factor is NaN are
    left out. Returns an empty set if a node has too many factors.
    """
    factors, factors_by_node = set[tuple[str, str]](), {graph.top: {abs(head_gradient)}}
    for index in range(graph.top, -1, -1):  # results come before their inputs
        if index not in factors_by_node:
            continue
        node = graph.nodes[index]
        node_factor, inputs = _factor_and_inputs(graph, node, constants or {})
        node_factors = {factor * node_factor for factor in factors_by_node[index]}
        if not inputs:
            factors |= {(node.op, f"{factor:.5g}") for factor in node_factors if not math.isnan(factor)}
        for input_index in inputs:
            factors_by_node[input_index] = factors_by_node.get(input_index, set()) | node_factors
            if len(factors_by_node[input_index]) > MOST_FACTORS:
                return set()
    return factors | _other_numbers(graph, factors_by_node)


def _other_numbers(graph: Graph, factor_nodes: Collection[int]) -> set[tuple[str, str]]:
    """Return (operator, number) for numbers that do not multiply a whole term, such as a temperature or an exponent.

    The record does not show whether numbers like a temperature are equal on all workers, so the workers compare them.
    """
    other_numbers = set[tuple[str, str]]()
    for index in graph.nodes_below(graph.top):
        node = graph.nodes[index]
        if index not in factor_nodes or node.op not in MULTIPLICATIONS | DIVISIONS:
            term_numbers = [node.attributes[name] for name in NUMBER_ATTRIBUTES if name in node.attributes]
            other_numbers |= {(f"{node.op} of", f"{float(term_number):.5g}") for term_number in term_numbers}
    return other_numbers


def _factor_and_inputs(graph: Graph, node: Node, constants: Mapping[str, float]) -> tuple[float, Sequence[int]]:
    """Return the absolute factor by which the node multiplies its inputs, and the inputs that the factor multiplies."""
    if node.op in MULTIPLICATIONS:
        return abs(float(node.attributes.get("scalar", "1"))), node.inputs
    if node.op in DIVISIONS:
        return _inverse(float(node.attributes.get("scalar", "1"))), node.inputs
    input_values = [constants.get(graph.nodes[index].name) for index in node.inputs]
    if node.op in RATIOS:
        return _inverse(1.0 if (divisor_value := input_values[-1]) is None else divisor_value), node.inputs[:1]
    if node.op in PRODUCTS:
        variable_inputs = [
            index for index, input_value in zip(node.inputs, input_values, strict=True) if input_value is None
        ]
        return abs(math.prod(input_value for input_value in input_values if input_value is not None)), variable_inputs
    return 1.0, node.inputs if node.op in LINEAR | MEANS | PROPORTIONAL else ()


def _inverse(number: float) -> float:
    return abs(1 / number) if number else math.inf
