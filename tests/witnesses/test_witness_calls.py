"""Every call to AWS in the source, against botocore's models: the operation, its parameters, and each error code that
is caught. What the models do not know is believed, and says from where.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from asking import ROOT
from botocore import xform_name
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker
from botocore.session import Session
from dyntrain.controller.adapters.aws import _TRANSIENT_ERROR_CODES
from dyntrain.controller.cli.doctor.claims import CAUGHT_ERRORS, TRANSIENT_ERROR_CODES, CaughtError, claims
from dyntrain.controller.jobs.verdict import SPOT_END_CODES

SERVICES = (
    "autoscaling",
    "cloudformation",
    "cloudwatch",
    "dynamodb",
    "ec2",
    "events",
    "iam",
    "logs",
    "pricing",
    "s3",
    "ssm",
    "sts",
)
PLACES = (
    *(ROOT / "controller" / "adapters").glob("*.py"),
    *(ROOT / "controller" / "cli").rglob("*.py"),
    *(ROOT / "node_bootstrap").rglob("*.py"),
    *(ROOT / "training" / "coordinator").glob("*.py"),
    *(ROOT / "training" / "feed").glob("*.py"),
    *(ROOT / "training" / "worker" / "channel").glob("*.py"),
    *(ROOT / ".chalice").glob("*.py"),
)
ADDRESS = re.compile(
    r"https://(?:(?:docs\.aws\.amazon|docs\.nvidia)\.com|www\.freedesktop\.org)/[\w./-]+\.html"
    r"|https://github\.com/NVIDIA/[\w-]+"
)


@cache
def model(service: str) -> Any:
    return Session().get_service_model(service)


@cache
def operations() -> dict[str, list[tuple[str, str]]]:
    """(service, operation) by the name of the client's method."""
    methods: dict[str, list[tuple[str, str]]] = {}
    for service in SERVICES:
        for name in model(service).operation_names:
            methods.setdefault(xform_name(name), []).append((service, name))
    return methods


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# ---- calls


@cache
def calls(path: Path) -> list[tuple[str, set[str], bool]]:
    return list(_calls(path))


def _calls(path: Path) -> Iterator[tuple[str, set[str], bool]]:
    """(method, names of its parameters, whether others are given by **)."""
    for function in ast.walk(tree(path)):
        if isinstance(function, ast.FunctionDef):
            yield from _calls_of(function)


def _calls_of(function: ast.FunctionDef) -> Iterator[tuple[str, set[str], bool]]:
    paginated: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (name := _paginator(node.value)) and isinstance(node.targets[0], ast.Name):
            paginated[node.targets[0].id] = name
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method: str | None = node.func.attr
        if method == "paginate":
            on = node.func.value
            method = paginated.get(on.id) if isinstance(on, ast.Name) else _paginator(on)
        given = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        if method in operations() and given and all(name != name.lower() for name in given):
            yield method, given, any(keyword.arg is None for keyword in node.keywords)


def _paginator(node: ast.expr) -> str | None:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "get_paginator":
            name = part.args[0]
            return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None


def test_each_call_gives_what_the_operation_takes() -> None:
    for method, given, more in (call for path in PLACES for call in calls(path)):
        fitting = [
            shape
            for service, operation in operations()[method]
            if (shape := model(service).operation_model(operation).input_shape) is not None
            and given <= set(shape.members)
            and (more or set(shape.required_members) <= given)
        ]
        assert fitting, f"{method} of none of {SERVICES} takes just {sorted(given)}"


def test_the_sweep_sees_the_calls() -> None:
    seen = {method for path in PLACES for method, _, _ in calls(path)}
    assert seen >= {
        "get_parameter",
        "put_item",
        "query",
        "describe_instances",
        "create_tags",
        "put_events",
        "filter_log_events",
    }


# ---- errors


def caught_in(path: Path) -> set[str]:
    """The error codes that a module compares with, directly or by a tuple of its own, and the client's exceptions."""
    module = tree(path)
    constants = {
        node.targets[0].id: node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    codes: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Compare) and _is_code(node.left):
            for part in node.comparators:
                value = constants.get(part.id, part) if isinstance(part, ast.Name) else part
                codes |= {
                    one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "exceptions"
            and ast.unparse(node).startswith("self.")
            and node.attr != "ClientError"
        ):
            codes.add(node.attr)
    return codes


def _is_code(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "error_code"
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "Code"
    return isinstance(node, ast.Attribute) and node.attr == "code" and isinstance(node.value, ast.Name)


def modelled(caught: CaughtError) -> bool:
    service, _, operation = caught.operation.partition(":")
    errors = model(service).operation_model(operation).error_shapes
    return caught.code in {shape.name for shape in errors} | {shape.error_code for shape in errors}


def test_each_error_that_is_caught_is_in_the_table() -> None:
    caught = {
        (str(path.relative_to(ROOT)), code) for path in PLACES for code in caught_in(path) - set(_TRANSIENT_ERROR_CODES)
    }
    assert caught == {(one.where, one.code) for one in CAUGHT_ERRORS}


@pytest.mark.parametrize("caught", CAUGHT_ERRORS, ids=lambda caught: f"{caught.where} {caught.claim}")
def test_an_error_is_in_the_operations_model_or_believed_from_an_address(caught: CaughtError) -> None:
    assert modelled(caught) != bool(caught.source), "the model settles it" if caught.source else "the model has no such"


def test_what_is_tried_again_is_known_to_botocore_or_believed_from_an_address() -> None:
    tables = {*ThrottledRetryableChecker._THROTTLED_ERROR_CODES, *TransientRetryableChecker._TRANSIENT_ERROR_CODES}
    for service in ("autoscaling", "dynamodb", "ssm"):  # EC2's model has no errors at all
        for name in model(service).operation_names:
            errors = model(service).operation_model(name).error_shapes
            tables |= {code for shape in errors for code in (shape.name, shape.error_code)}
    assert _TRANSIENT_ERROR_CODES - tables == set(TRANSIENT_ERROR_CODES)


def test_ec2s_model_names_the_reasons_by_which_a_job_is_taken_for_interrupted() -> None:
    named = re.findall(r"<code>([\w.]+)</code>", model("ec2").shape_for("StateReason").members["Message"].documentation)
    assert set(SPOT_END_CODES) == {code for code in named if "Spot" in code}


# ---- what is only believed


def test_each_address_of_the_documentation_that_the_source_names_is_in_the_table() -> None:
    folders, kinds = ("controller", "node_bootstrap", "training", ".chalice"), (".py", ".yaml", ".service")
    places = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    assert {path.suffix for path in places} == set(kinds)
    named = {address for path in places if "local" not in path.parts for address in ADDRESS.findall(path.read_text())}
    stand_ins = (ROOT / "controller" / "local" / "machines" / "bare" / "stand_ins.py").read_text()
    listed = re.findall(r"^\((\d)\) (\S+)$", stand_ins, re.MULTILINE)
    assert [number for number, _ in listed] == list("12345")
    named |= {urljoin("https://docs.aws.amazon.com/", address) for _, address in listed}
    decided = re.findall(r"believed,\s+from\s+(https://[^\s)]+)", (ROOT / "DECISIONS.md").read_text())
    assert len(decided) > 1
    assert (named | set(decided)) - {claim.source for claim in claims()} == set()


def test_the_purchase_options_that_are_told_apart_are_words_of_ec2() -> None:
    instance = model("ec2").shape_for("Instance").members
    assert {"spot", "capacity-block"} <= set(instance["InstanceLifecycle"].enum)
    assert {"InstanceType", "CapacityReservationId"} <= set(instance)
