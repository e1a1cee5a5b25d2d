"""Python imports this file when it starts, for `dyntrain.training.dt_scripts`.

The machine's own sitecustomize, which this file hides, is executed first.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry) != HERE]
hidden = PathFinder.find_spec("sitecustomize")
if hidden is not None and hidden.loader is not None:
    sys.modules["sitecustomize"] = module = module_from_spec(hidden)
    hidden.loader.exec_module(module)
try:
    from dyntrain.training.dt_scripts.hook import install_hook
except ImportError:  # a Python of the machine that does not train
    pass
else:
    install_hook()
