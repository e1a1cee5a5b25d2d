"""`python -m dyntrain.training.launch`: launches an elastic job on existing hosts."""

import sys

from dyntrain.missing import TRAINING_PACKAGES, exit_with_advice, require

with exit_with_advice():
    require(TRAINING_PACKAGES)
    from dyntrain.training.launch.command import main

sys.exit(main())
