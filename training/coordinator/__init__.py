"""The coordinator process: the clock, sockets and files of `training.session`, and where the membership comes from.

Journal records reach the disk before later orders are carried out. A coordinator that is started again reads which
generation was settled last, hears from each worker where it is, and goes on in the phase that the job is in. It keeps
the job until the last worker has left.

When its machine is lost, another base node takes the job over, in four steps that each can be repeated:

1. The controller nominates (`controller/core/decisions/succession.py`): the tagged master first; when EC2 says that
   its machine is gone or going, or after `takeover_seconds` of silence, the next base node. The nomination travels in
   the target with a term that only grows, so it is settled by the same compare-and-set as membership.
2. The nominated node starts a coordinator once it has none itself. While one answers it, nobody even looks.
3. That coordinator claims the job on the shared volume and begins a journal of its own (`terms`). One that still lives
   reads the claim after each decision that it writes and before anybody is told, and once a second; it ends. What it
   wrote after its successor read it does not count, also for the audit.
4. It publishes address, certificate and token anew; nodes that lost the old one read them.

A node that comes back does not get the job back. A base node that is replaced on purpose is another matter
(`controller/core/decisions/replacement.py`): the successor is listed without its predecessor, which the coordinator
keeps until the successor offers ps-lite processes; then both change at one boundary.
"""
