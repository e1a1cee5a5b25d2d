"""The coordinator process: clock, sockets and files for `training.session`, and the connection to the controller.

Journal records reach the disk before later orders are carried out. A restarted coordinator reads from the journal which
generation (group of workers) was formed last, gets each worker's position, and continues in the job's present phase.
The coordinator runs until the last worker has left the job.

When the coordinator's machine is lost, another base node takes the job over, in four steps that can be repeated:

1. The controller nominates a base node (`controller/core/decisions/succession.py`): first the tagged master. The next
   base node is nominated when EC2 says that the master's machine has ended or will end, or after `takeover_seconds` of
   silence. The nomination is written with the target: the membership that the controller wants. Each nomination has a
   higher term than all earlier nominations.
2. The nominated node starts a coordinator if none answers; while a coordinator answers, nodes ignore nominations.
3. The new coordinator claims the job on the shared volume and begins a journal of its own (`terms`). A former
   coordinator that is still alive reads the claim after each decision, before it sends orders, and once a second; then
   it ends. Journal entries of the former coordinator that its successor could not read are void, also for the audit.
4. The new coordinator publishes its address, certificate and token for the nodes that lost the old coordinator.

A former master that returns does not become the coordinator again. The planned replacement of a base node works
differently (`controller/core/decisions/replacement.py`): the target lists the successor without its predecessor. The
coordinator keeps the predecessor until the successor offers ps-lite processes, and replaces the predecessor at a
boundary between two steps.
"""
