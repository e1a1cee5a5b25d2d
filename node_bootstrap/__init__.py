"""Runs on every node: prepares it, reports it, and owns its worker and ps-lite processes.

`python -m dyntrain.node_bootstrap run` looks what is there and does the first step that is left, until the node is
retired. What a step leaves behind is what is looked at: the mount, the profile and the workers file, installed
packages, the marker; the report and the signal are each life's own.

| trouble on a node | what happens |
| --- | --- |
| prepare-data fails | again with growing pauses, `prepare_attempts` times; then `PREPARE_FAILED` with its last words |
| prepare-data does not end | at `prepare_timeout_seconds` it is killed with all that it started; that was a try |
| a marker of another instance or script | ignored, and removed before the script runs |
| the metadata service is silent | bounded tries, then exit code 75 (started again), 78 where only a person can help |
| the coordinator is away | SSM is asked again and again; each connection says all that still holds |
| a stranger on the channel | refused and logged without secrets; nothing changes |
| a Spot or rebalance notice | coordinator and controller are told the deadline; the worker leaves at the next segment |
| the worker crashes | the coordinator decides; without one it is started again within a budget, then released |
| the coordinator is away for long | after `isolation_seconds` the worker is stopped, until the target lists the node |
| the bootstrap is killed | all that it started ends; the next life sweeps, and goes on with its plan |
| a log grows | its older part is taken off its front by the kernel, into three files beside it |

Nodes end no machine, their own neither: their role lacks the right. The controller does it, after the report that the
worker has left.
"""
