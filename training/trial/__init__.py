"""`dyntrain check`: whether a script trains over workers that come and go as it does in one process, by experiment.

`plan` says what happens to the members, `differences` compares the weights of two runs, `verdict` says what that
comes to: these are pure. `processes` runs the script alone, `members` under a launch on this machine, `experiment` is
the course of all that. What a worker does for it is in `dyntrain.training.worker.loop.trial`.
"""
