"""Installs the import hook of `dyntrain.training.dt_scripts`: Python imports this file when it starts.

This file hides the machine's own sitecustomize, so this file executes the hidden file first.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

OWN_FOLDER = Path(__file__).parent
sys.path[:] = [path_entry for path_entry in sys.path if not path_entry or Path(path_entry) != OWN_FOLDER]
hidden_spec = PathFinder.find_spec("sitecustomize")
if hidden_spec is not None and hidden_spec.loader is not None:
    sys.modules["sitecustomize"] = module = module_from_spec(hidden_spec)
    hidden_spec.loader.exec_module(module)
try:
    from dyntrain.training.dt_scripts.hook import install_hook
except ImportError:  # a Python of the machine that does not train
    pass
else:
    install_hook()
