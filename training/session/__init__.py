"""The state machine with which the coordinator manages one training job.

The state machine is pure: its functions get events and the time `now`, and return orders. A generation is the group of
workers between two changes of the membership. The membership may change at a boundary, a point between two steps. A
commit is a checkpoint; a safe state is a node's copy of the training state in memory.

The cost of losing a worker depends on when the worker is lost:

| the worker is lost | what happens |
| --- | --- |
| while it stands by, or after its last step before a boundary | the other workers continue without it |
| between two loops over epochs | the same; without survivors, training resumes at the earlier loop's last boundary |
| it was started and does not connect within `--progress-seconds` | it is killed and started again; no worker waits |
| while the next generation prepares, before the order to go | *taken back*: another generation is formed |
| during training: killed, crashed, hung, cut off | *release*: the other workers are freed, and lose at most one step |
| the same, on a node with several workers | the node's other workers leave at the formation and join again |
| it is alive, and keeps other workers waiting inside a step | release; it is restarted if it does not prepare |
| it is alive, and does not reach a boundary where other workers wait | only this worker is restarted |
| inside a formation, after the order to go | *restart* of all workers from the safe state; no step is repeated |
| a ps-lite server or scheduler is lost too, or a release is too slow | *restart* from a safe state or a commit |

At each boundary a few values of the workers' states are compared between the workers, and in each formation all values.
If values differ between workers, all workers are restarted from the last state that they had in common. A fourth
difference of states without progress in between fails the job. Twenty restarts in a row without progress also fail the
job. A node whose worker fails too often cools down: its worker is not restarted for a while, longer each time. Each
failure of a worker is treated alike, whatever its cause, as each failure costs the other workers the same. A node that
would cool down for more than ten minutes is given up: an elastic node is released, a base node is tried again. An
announced interruption of a machine is not recorded as a failure. With fewer workers than the minimum the job pauses,
reports the pause, and fails after `--pause-seconds`.

`recovery.stalls` reports workers that keep other workers waiting for half a minute; a report has no further effect.

Each node's supervisor reports when a worker's process has ended. A worker without a connection is treated as lost after
a grace period. A hung process is detected by unanswered pings (`--liveness-seconds`), and a live process without
progress by the time limit `--progress-seconds`. All time limits of coordinator, nodes and workers derive from
`--liveness-seconds` and `--progress-seconds` (`training/protocol/clocks.py`).

If no worker holds the state when a generation starts, `origin` chooses the furthest safe state of the connected nodes,
unless a commit is as far. If the chosen safe state is damaged or gone, the next furthest safe state is used, or the
commit if no safe state is further. A safe state that contains steps which were undone later is never used.

Messages are lost only when a connection is lost, so orders are repeated to each process that connects. A worker obeys a
repeated order only once (`worker/membership/dialogue.py`). A test of the whole protocol breaks connections, processes
and the coordinator at random points, in a job with one loop over epochs.
"""
