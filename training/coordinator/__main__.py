"""`python -m dyntrain.training.coordinator`: the process to which a job's workers connect."""

import sys

from dyntrain.missing import exit_with_advice

with exit_with_advice(code=78):  # of sysexits.h: a person must act, as a restart would fail too
    from dyntrain.training.coordinator.command import main

sys.exit(main())
