"""`dyntrain check`: an experiment that shows whether a script trains on changing workers as it does in one process.

Pure: `plan` says which membership changes are made, `differences` compares the weights of two runs, `verdict` states
the result. `processes` runs the script alone, `members` runs it under a launch on this machine, and `experiment`
conducts all of it. The worker's part is in `dyntrain.training.worker.loop.trial`.
"""
