"""The coordinator process: clock, sockets and files for `training.session`, and the connection to the controller.

The coordinator writes each decision to its journal on disk, before it carries out the orders that follow from the
decision. A restarted coordinator reads from the journal which generation (group of workers) was formed last. The
workers then report their positions, and the coordinator continues the job from there. The coordinator runs until the
last worker has left the job.

When the coordinator's machine is lost, another base node takes the job over, in four steps that can be repeated.

Step 1: the controller nominates a base node (`controller/core/decisions/succession.py`), at first the tagged master.
The next base node is nominated when EC2 says that the master's machine has ended or will end, or after
`takeover_seconds` of silence. The nomination is written with the target, which lists the members that the controller
wants. Each nomination has a higher number, its term, than all earlier nominations.

Step 2: the nominated node starts a coordinator if no coordinator answers. While a coordinator answers, nodes ignore
nominations.

Step 3: the new coordinator claims the job on the shared volume and begins a journal of its own (`terms`). A former
coordinator that is still alive reads the claim after each decision, before it sends orders, and once a second; it shuts
down when the claim names another coordinator. Journal entries of the former coordinator that the new coordinator could
not read are void, also for the audit.

Step 4: the new coordinator publishes its address, certificate and token, for the nodes that lost the old coordinator.

A former master that returns does not become the coordinator again. The planned replacement of a base node works
differently (`controller/core/decisions/replacement.py`): the target lists the successor without its predecessor. The
coordinator keeps the predecessor until the successor offers ps-lite processes, and replaces the predecessor at a
boundary between two steps.
"""
