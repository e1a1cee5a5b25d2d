"""The coordinator process: clock, sockets and files for `training.session`, and the source of the membership.

Journal records reach the disk before later orders are carried out. A coordinator that is started again reads which
generation was settled last, gets each worker's position, and continues in the job's present phase. It keeps the job
until the last worker has left.

When its machine is lost, another base node takes the job over, in four steps, each of which can be repeated:

1. The controller nominates (`controller/core/decisions/succession.py`): the tagged master first; when EC2 says that
   its machine is gone or going, or after `takeover_seconds` of silence, the next base node. The nomination travels in
   the target with a term that only grows, so it is settled by the same compare-and-set as membership.
2. The nominated node starts a coordinator if none answers it; while one answers, no node checks its nomination.
3. The new coordinator claims the job on the shared volume and begins a journal of its own (`terms`). A former
   coordinator that is still alive reads the claim after it writes a decision, before it sends anything about it, and
   once a second; then it ends. What it wrote after its successor read its journal does not count, also for the audit.
4. The new coordinator publishes its address, certificate and token; nodes that lost the old one read them.

A node that comes back does not get the job back. The planned replacement of a base node works differently
(`controller/core/decisions/replacement.py`): the target lists the successor without its predecessor, which the
coordinator keeps until the successor offers ps-lite processes; then both change at one boundary.
"""
