"""Memory and processes that outlive a worker on its host: safe memory, fork servers, spares, the reaper, AWS sessions.

This package does not import MXNet. A fork server imports MXNet once and forks *blanks*: idle processes that wait for a
role. A fork takes milliseconds, so workers form a group, even twice in a row, without waiting for an import. The import
starts no thread, so the fork is safe. If the fork server dies, all processes that it forked die too, and the job
restarts.
"""
