"""Predicts how long a gradient exchange, a membership change and a worker's crash take, for a placement of servers.

Pure.

The model counts the bytes that enter and leave each node over its link, and the bytes that each server adds up.
Gradients are split and assigned to servers as in `dyntrain.training.engine`. The speeds of the machines are the model's
input (`Machines`). `make bench BENCH=model` compares the predictions with measurements on links of limited speed. The
command `dyntrain model` prints the predictions. The file `training/SCALING.md` contains the predictions, their error
and recommended settings.

The model ignores other traffic, and assumes nodes of equal speed. The model also ignores how TCP shares a link among
connections, which causes most of its error.
"""
