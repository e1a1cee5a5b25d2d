"""The state machine with which the coordinator manages one training job.

The state machine is pure: its functions get events and the time `now`, and return orders. A generation is the group of
workers between two changes of the membership. The membership may change at a boundary, a point between two steps. A
commit is a checkpoint; a safe state is a node's copy of the training state in memory.

The cost of losing a worker depends on when the worker is lost. If the worker stands by, or has finished its last step
before a boundary, the other workers continue without the lost worker. Between two loops over epochs the other workers
also continue without the lost worker; if all workers are lost there, training resumes at the earlier loop's last
boundary. A started worker that does not connect within `--progress-seconds` is killed and started again, and no other
worker waits for it.

If a worker is lost while the next generation prepares, before the order to go, this generation is *taken back* and
another generation is formed. If a worker is lost inside a formation, after the order to go, all workers *restart* from
the safe state, and no step is repeated.

If a worker is killed, crashes, hangs or is cut off during training, the other workers are freed by a *release*, and
lose at most one step. If the lost worker's node runs several workers, the node's remaining workers leave at the next
formation and join again. A live worker that keeps the other workers waiting inside a step also causes a release; it is
restarted if it does not prepare for the next generation. A live worker that does not reach a boundary where other
workers wait is restarted alone. If a ps-lite server or scheduler is lost too, or a release takes too long, all workers
*restart* from a safe state or a commit.

At each boundary a few values of the workers' states are compared between the workers, and in each formation all values.
If values differ between workers, all workers are restarted from the last state that they had in common. A fourth
difference without progress in between fails the job. Twenty restarts in a row without progress also fail the job. A
node whose worker fails too often cools down: its worker is not restarted for a while, longer each time. Each failure of
a worker is treated alike, whatever its cause, as each failure costs the other workers the same. A node that would cool
down for more than ten minutes is given up: an elastic node is released, a base node is tried again. An announced
interruption of a machine is not recorded as a failure. With fewer workers than the minimum the job pauses, reports the
pause, and fails after `--pause-seconds`.

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
