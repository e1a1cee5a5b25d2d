"""Predicts the time of a gradient exchange, a membership change and a crash, by the placement of servers. Pure.

The model counts the bytes over each node's link, in and out separately, and the bytes that each server adds up; keys
are split and assigned as by the engine and ps-lite. The machines' properties are the model's input (`Machines`). `make
bench BENCH=model` compares the predictions with groups on links of limited speed; `dyntrain model` prints the
predictions; `training/SCALING.md` has the table, the error and recommended settings.

The model ignores other traffic, nodes of different speed, and how TCP shares a link among connections. This sharing
causes most of the error.
"""
