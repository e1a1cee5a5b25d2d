"""`python -m dyntrain.training.launch`: launches an elastic job on existing hosts."""

import sys

from dyntrain.missing import TRAINING, one_sentence, require

with one_sentence():
    require(TRAINING)
    from dyntrain.training.launch.command import main

sys.exit(main())
