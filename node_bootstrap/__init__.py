"""The program of every node: prepares the node, reports its state, and runs its worker and ps-lite processes.

`python -m dyntrain.node_bootstrap run` always carries out the first step that is not done, until the node is retired. A
finished step is recognised by its result, such as a mounted volume, a written file or installed packages. Each run of
the program sends a report on the preparation to the controller, and the ready signal to the coordinator once.

| problem on a node | what happens |
| --- | --- |
| prepare-data fails | retried with growing pauses, `prepare_attempts` times; then `PREPARE_FAILED` with the output |
| prepare-data does not end | killed with all its processes after `prepare_timeout_seconds`; this counts as a failure |
| a marker of another instance or script | ignored, and removed before the script runs |
| the metadata service does not answer | bounded retries, then exit code 75 (restarted), or 78 if a person must act |
| the coordinator is unreachable | the node queries SSM repeatedly, and sends its whole state over each new connection |
| an unknown client on the channel | refused and logged without secrets; nothing changes |
| a Spot or rebalance notice | coordinator and controller get the deadline; the worker leaves at the segment's end |
| the worker crashes | the coordinator decides; without one the node restarts the worker a few times, then gives up |
| the coordinator is away for long | after `isolation_seconds` the worker is stopped, until the target lists the node |
| the program is killed | all its child processes end; the next run kills those that are left, and continues |
| a log grows | its older part is moved to other files, of which three are kept |

A node cannot terminate an instance, since its IAM role lacks the permission. The controller terminates the instance
once the node has reported that its worker has left.
"""
