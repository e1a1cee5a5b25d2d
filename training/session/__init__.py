"""The coordinator's state machine. Pure: events go in with `now`, orders come out.

What a loss costs the others:

| the worker is lost | what happens |
| --- | --- |
| while it stands by, or after its last step before a boundary was in | the others go on without it |
| between two loops over epochs | the same; all of them: the last boundary of the loop before comes again |
| it was started and does not connect in `--progress-seconds` | it is killed and started again; nobody waits for it |
| after the next generation was settled, before the word to go | *taken back*: another one is formed, nothing is lost |
| while the others train: killed, crashed, hung, cut off | *release*: they free themselves, void at most one step |
| the same, of a node with several workers | they leave at the formation and come again; the last node waits |
| it lives, and keeps the others waiting inside a step | the same; it alone is restarted if it does not prepare |
| it lives, and does not come to a boundary where others wait | it alone is restarted |
| inside a formation, after the word to go | *restart* from the safe state; nothing is trained again |
| not free in time; together with a ps-lite server or scheduler | *restart* from what is safe, whichever is further |

Workers whose states differ, of which a few values are compared at each boundary and all in a formation, are restarted
from what all had alike; the fourth time ends the job. Twenty restarts in a row that got no further end it too, with the
reason. A node whose worker fails too often cools down, longer each time, and is readmitted; whose hand it was does not
matter, as each failure costs the others the same.
A node that would cool down for more than ten minutes is given up: an elastic one is released, a base node is tried
again all the same. An announced interruption of a machine is no failure. Below the minimum of workers the job pauses,
says so, and fails after `--pause-seconds`.

Who keeps the others waiting for half a minute is told of, by `recovery.stalls`; that changes nothing.

A process's end is told by its supervisor; a lost connection counts after a grace; a process that hangs does not answer
pings (liveness); one that lives and gets nowhere is found by the progress clock. All bounds derive from those two
options (`training/protocol/clocks.py`), the nodes' and the workers' too.

When a generation has to start without anybody who holds the state, `origin` takes the furthest safe state of those that
are back, unless a commit is as far; damaged or gone, the next one's, then the last commit. One with anything in it that
was undone since is never taken.

Words are lost with a connection only, so orders are repeated to whoever connects, and
`worker/membership/dialogue.py` takes each once. A random-schedule test of the whole conversation breaks connections,
processes and the coordinator anywhere, in a job of one loop.
"""
