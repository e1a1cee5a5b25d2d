"""The coordinator's state machine. Pure: events go in with `now`, orders come out.

What the loss of a worker costs the others:

| the worker is lost | what happens |
| --- | --- |
| while it stands by, or after it finished its last step before a boundary | the others continue without it |
| between two loops over epochs | the same; if all are lost, training resumes at the earlier loop's last boundary |
| it was started and does not connect in `--progress-seconds` | it is killed and started again; nobody waits for it |
| after the next generation was settled, before the order to go | *taken back*: another one is formed, nothing is lost |
| while the others train: killed, crashed, hung, cut off | *release*: they free themselves, void at most one step |
| the same, on a node with several workers | they leave at the formation and come again; the last node waits |
| it is alive, and keeps the others waiting inside a step | the same; it alone is restarted if it does not prepare |
| it is alive, and does not reach a boundary where others wait | it alone is restarted |
| inside a formation, after the order to go | *restart* from the safe state; no step is repeated |
| it is not free in time, or a ps-lite server or scheduler is lost too | *restart* from safe state or commit |

A few values of the workers' states are compared at each boundary, and all in a formation. If they differ, the workers
are restarted from the last state that they had in common; the fourth time, the job fails. Twenty restarts in a row
without progress fail it too, with the reason. A node whose worker fails too often cools down, longer each time, and is
readmitted; who caused the failures does not matter, as each costs the others the same. A node that would cool down for
more than ten minutes is given up: an elastic one is released, a base node is tried again nevertheless. An announced
interruption of a machine does not count as a failure. Below the minimum of workers the job pauses, reports that, and
fails after `--pause-seconds`.

`recovery.stalls` reports who keeps the others waiting for half a minute; that changes nothing else.

The supervisor reports the end of a process; a lost connection counts after a grace period; a hung process does not
answer pings (liveness); a process that is alive without progress is found by the progress clock. All bounds, those of
nodes and workers too, derive from these two options (`training/protocol/clocks.py`).

When a generation has to start and nobody holds the state, `origin` chooses the furthest safe state of the nodes that
are back, unless a commit is as far. If it is damaged or gone, the next one is used, and last the commit. A safe state
that contains steps undone since is never used.

Messages are lost only with a connection, so orders are repeated to each process that connects, and
`worker/membership/dialogue.py` obeys each one once. A random-schedule test of the whole protocol breaks connections,
processes and the coordinator at any point, in a job of one loop.
"""
