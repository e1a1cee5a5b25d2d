"""What outlives a worker process on its host: memory with the training state, fork servers, spare workers.

This package does not import MXNet. A fork server imports MXNet once and forks *blanks*: idle processes that wait until
they get a role. A fork takes milliseconds, so workers can form a group without waiting for an import of MXNet. The
import of MXNet starts no thread, so forking after the import is safe. If the fork server dies, all processes that it
forked die too, and the job restarts.
"""
