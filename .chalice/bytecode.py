"""Compiles the modules that the functions import: Lambda's copy of the zip is read-only, so each cold start would
compile.

It runs in its own process, for reproducible bytes: marshal's output depends on what else the interpreter has loaded.
The files need no check against their source (PEP 552), whose dates do not survive a zip.
"""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import py_compile
import sys
from pathlib import Path

TASK = Path("/var/task")  # where Lambda unpacks the zip: what tracebacks show


def import_all() -> set[str]:
    """Import the app and the controller; returns the names of all loaded modules."""
    importlib.import_module("app")
    controller = importlib.import_module("dyntrain.controller")
    for module in pkgutil.walk_packages(controller.__path__, "dyntrain.controller."):
        importlib.import_module(module.name)
    contract = importlib.import_module("dyntrain.controller.contract.messages")
    contract.Target.of(0, ()).model_dump_json()  # pydantic builds models at first use, which loads further modules
    return set(sys.modules)


def compile_all(folder: Path, modules: set[str]) -> None:
    """Write `__pycache__` folders for the modules in `folder`."""
    for name in sorted(modules):
        for source in (folder / f"{name.replace('.', '/')}.py", folder / name.replace(".", "/") / "__init__.py"):
            if source.exists():
                traceback_path = TASK / source.relative_to(folder)
                is_own_module = name == "app" or name.startswith("dyntrain")
                py_compile.compile(
                    str(source),
                    cfile=importlib.util.cache_from_source(str(source)),  # the name that an import looks for
                    dfile=str(traceback_path),
                    optimize=0 if is_own_module else 2,  # the packages' docstrings are a fifth of their bytecode
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )


if __name__ == "__main__":
    if sys.argv[1] == "list":
        sys.stdout.write(json.dumps(sorted(import_all())))
    else:
        compile_all(Path(sys.argv[1]), set(json.load(sys.stdin)))
