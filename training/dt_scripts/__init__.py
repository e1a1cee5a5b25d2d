"""Gives unchanged scripts of AWS Dynamic Training dyntrain's elastic interface when they import MXNet.

The function `environment` makes Python import `site/sitecustomize.py` when a training process starts.
`site/sitecustomize.py` only installs the import hook of the module `hook`, which costs nothing in processes that do not
import MXNet. Processes that a training script starts inherit its environment, and so get the hook, too. The processes
of ps-lite do not get the hook.

The hook is not installed in a Python that ignores its environment (options -I, -E) or its site packages (-S), or that
lacks dyntrain.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE_FOLDER = Path(__file__).parent / "site"
PATH_VARIABLE = "PYTHONPATH"


def environment(variables: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return `variables` with PYTHONPATH extended, so that a process with these variables gets an elastic MXNet."""
    earlier_path = variables.get(PATH_VARIABLE, inherited.get(PATH_VARIABLE, ""))
    return {**variables, PATH_VARIABLE: os.pathsep.join([str(SITE_FOLDER), *([earlier_path] if earlier_path else [])])}
