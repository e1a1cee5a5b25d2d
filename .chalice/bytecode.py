"""Compiles the modules that the functions import: Lambda's copy of the zip is read-only, so Python would do it again at
every cold start.

Its own process, for the same bytes each time: what marshal writes depends on what else the interpreter has loaded. The
files say that they need no check against their source (PEP 552), whose dates do not survive a zip.
"""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import py_compile
import sys
from pathlib import Path

TASK = Path("/var/task")  # where Lambda unpacks the zip: what tracebacks show


def imported() -> set[str]:
    """The names of all modules that the app and the controller bring in."""
    importlib.import_module("app")
    controller = importlib.import_module("dyntrain.controller")
    for found in pkgutil.walk_packages(controller.__path__, "dyntrain.controller."):
        importlib.import_module(found.name)
    contract = importlib.import_module("dyntrain.controller.contract.messages")
    contract.Target.of(0, ()).model_dump_json()  # models are built at their first use, which loads a little more
    return set(sys.modules)


def compiled(folder: Path, modules: set[str]) -> None:
    """Puts `__pycache__` folders beside those of the modules that are in `folder`."""
    for name in sorted(modules):
        for source in (folder / f"{name.replace('.', '/')}.py", folder / name.replace(".", "/") / "__init__.py"):
            if source.exists():
                shown = TASK / source.relative_to(folder)
                ours = name == "app" or name.startswith("dyntrain")
                py_compile.compile(
                    str(source),
                    cfile=importlib.util.cache_from_source(str(source)),  # the name that an ordinary start looks for
                    dfile=str(shown),
                    optimize=0 if ours else 2,  # the packages' docstrings are a fifth of their bytecode
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )


if __name__ == "__main__":
    if sys.argv[1] == "list":
        sys.stdout.write(json.dumps(sorted(imported())))
    else:
        compiled(Path(sys.argv[1]), set(json.load(sys.stdin)))
