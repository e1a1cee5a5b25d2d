"""`python -m dyntrain.training.launch`: an elastic job by hand, on hosts that are there."""

import sys

from dyntrain.missing import TRAINING, one_sentence, require

with one_sentence():
    require(TRAINING)
    from dyntrain.training.launch.command import main

sys.exit(main())
