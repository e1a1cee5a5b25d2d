"""The program of every node: prepares it, reports on it, and runs its worker and ps-lite processes.

`python -m dyntrain.node_bootstrap run` checks which steps are done and carries out the first one that is not, until the
node is retired. A step is recognised by what it leaves behind: the mount, the profile and the workers file, installed
packages, the marker. The report and the ready signal are sent once by each run of the program.

| problem on a node | what happens |
| --- | --- |
| prepare-data fails | retried with growing pauses, `prepare_attempts` times; then `PREPARE_FAILED` with the output |
| prepare-data does not end | killed with all its processes after `prepare_timeout_seconds`; that counts as one try |
| a marker of another instance or script | ignored, and removed before the script runs |
| the metadata service does not answer | bounded retries, then exit code 75 (restarted), or 78 if a person must act |
| the coordinator is unreachable | SSM is queried repeatedly; each new connection sends the whole current state |
| an unknown client on the channel | refused and logged without secrets; nothing changes |
| a Spot or rebalance notice | coordinator and controller get the deadline; the worker leaves at the next segment |
| the worker crashes | the coordinator decides; without one it is restarted within a budget, then released |
| the coordinator is away for long | after `isolation_seconds` the worker is stopped, until the target lists the node |
| the bootstrap is killed | all its processes end; the next run removes what is left and continues with its plan |
| a log grows | the kernel removes its older part, which is kept in three files beside it |

A node never terminates an instance, not even its own: its role lacks the permission. The controller does so once the
node has reported that the worker has left.
"""
