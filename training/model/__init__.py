"""Predicts what a gradient exchange, a membership change and a crash take, by ps-lite's server placement. Pure.

The model counts the bytes over each node's link, in and out separately, and the bytes that each server adds up; keys
are split and dealt as the engine and ps-lite do it. The machines' properties are its input (`Machines`). `make bench
BENCH=model` compares it with groups on links of limited speed; `dyntrain model` prints it; `training/SCALING.md` has
the table, the error and recommended settings.

It ignores other traffic, nodes of different speed, and how TCP shares a link among many connections, which is the
largest part of its error.
"""
