"""`dyntrain check`: an experiment that shows whether a script trains the same on changing workers and in one process.

Three modules are pure: `plan` lists the membership changes, `differences` compares the weights of two runs, and
`verdict` states the result. `processes` runs the script alone, `members` runs it on several workers of this machine,
and `experiment` conducts all runs. The worker's part is in `dyntrain.training.worker.loop.trial`.
"""
