"""What an exchange of gradients, a change of membership and a crash take, by where ps-lite's servers are. Pure.

It counts the bytes that cross each node's link, in and out apart, and the bytes that each server adds up; the keys are
cut and dealt as the engine and ps-lite do it. What a machine is like (`Machines`) is given. `make bench BENCH=model`
compares it with groups on links that are held to a speed; `dyntrain model` prints it; `training/SCALING.md` has the
table, the error and what to set.

It knows nothing of other traffic, of nodes of different speed, and of how TCP shares a link among many connections,
which is the largest part of its error.
"""
