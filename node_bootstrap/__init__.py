"""The program of every node: prepares the node, reports its state, and runs its worker and ps-lite processes.

`python -m dyntrain.node_bootstrap run` repeatedly carries out the first step that is not done, until the node is
retired. A finished step is recognised by its result, such as a mounted volume, a written file or installed packages. In
each run, the program reports to the controller whether the node is prepared, and sends the ready signal to the
coordinator.

If the user's prepare-data script fails, the script is run again with growing pauses, at most `prepare_attempts` times.
After the last failure of prepare-data, the node reports `PREPARE_FAILED` with the script's output. If prepare-data does
not end within `prepare_timeout_seconds`, the script is killed with all its processes, and the run counts as a failure.
A success marker of another instance or of another script is ignored, and removed before prepare-data runs.

If the metadata service does not answer, the program retries a limited number of times. If no retry succeeds, the
program exits with code 75 (systemd starts the program again), or with code 78 (a person must act). While the
coordinator is unreachable, the node queries Parameter Store repeatedly. The node sends its whole state over each new
connection to the coordinator. An unknown client of the coordinator is refused and logged without secrets, and changes
nothing. After a Spot or rebalance notice, the coordinator and the controller get the deadline, and the worker leaves at
the next boundary of the training.

If the worker crashes, the coordinator decides what happens. Without a coordinator, the node restarts a crashed worker a
few times and then gives up. If the node has no coordinator for `isolation_seconds`, the worker is stopped until the
controller's target lists the node. If the program is killed, all its child processes are killed too. The next run of
the program kills the child processes that are left, and continues with the first step that is not done. When a log file
is too long, its older part is moved to other files, of which three are kept.

A node cannot terminate an instance, since its IAM role lacks the permission. The controller terminates the instance
once the node has reported that its worker has left.
"""
