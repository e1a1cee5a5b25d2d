"""`dyntrain check`: an experiment that shows whether a script trains the same on changing workers and in one process.

Of the pure modules, `plan` lists the membership changes, `differences` compares the weights of two runs, and `verdict`
states the result. `processes` runs a script as one process, `members` runs a script on several workers of this machine,
and `experiment` conducts all runs. What a worker does and records in an experiment is in
`dyntrain.training.worker.loop.trial`.
"""
