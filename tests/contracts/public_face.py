"""What users and other versions rely on, as data: the package's names, the commands, and the fields of all records.

`python tests/contracts/public_face.py > tests/contracts/public_face.json` accepts a change of it.
"""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from types import ModuleType
from typing import Any

import click
import dyntrain
from dyntrain.controller.cli.main import main
from dyntrain.training import job
from pydantic import BaseModel

RECORDS = [
    "controller.contract.job_history",
    "controller.contract.messages",
    "controller.contract.reports",
    "controller.core.history.trail",
    "controller.core.records.acks",
    "controller.core.records.facts",
    "controller.core.records.groups",
    "controller.core.records.job",
    "controller.core.records.registers",
    "controller.jobs.record",
    "training.events",
    "training.journal",
    "training.ledger",
    "training.protocol.messages",
    "training.protocol.node_messages",
]


def public_face() -> dict[str, Any]:
    constructed = [getattr(dyntrain, name) for name in dyntrain.__all__ if name != "__version__"]
    returned = [job.Epoch, job.ElasticTrainer]
    return {
        "package": {kind.__name__: members(kind, kind in constructed) for kind in constructed + returned},
        "commands": dict(commands(main, "dyntrain")),
        "records": {name: records(import_module(f"dyntrain.{name}")) for name in RECORDS},
    }


def members(kind: type, constructed: bool) -> dict[str, str]:
    """Public attributes of a class, methods with their parameters; with those of its constructor if users call it."""
    return {
        name: str(inspect.signature(getattr(kind, name))) if callable(getattr(kind, name)) else type(value).__name__
        for name, value in sorted(vars(kind).items())
        if not name.startswith("_") or (constructed and name == "__init__")
    }


def commands(command: click.Command, name: str) -> list[tuple[str, list[str]]]:
    """Each command with its arguments and options."""
    parameters = [spelling for each in command.params for spelling in (each.opts + each.secondary_opts)]
    rows = [(name, sorted(parameters))]
    if isinstance(command, click.Group):
        for part in command.list_commands(click.Context(command)):
            following = command.get_command(click.Context(command), part)
            assert following is not None
            rows += commands(following, f"{name} {part}")
    return rows


def records(module: ModuleType) -> dict[str, list[str]]:
    """The module's models: the keys of their JSON; a constant, such as an event's name, with its value."""
    models = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, BaseModel)]
    return {model.__name__: keys(model) for model in models if model.__module__ == module.__name__}


def keys(model: type[BaseModel]) -> list[str]:
    return [
        f"{field.alias or name}={field.default}" if isinstance(field.default, str) else field.alias or name
        for name, field in model.model_fields.items()
    ]


if __name__ == "__main__":
    print(json.dumps(public_face(), indent=1))  # noqa: T201
