"""Memory and processes that outlive a worker on its host: safe memory, fork servers, spares, the reaper; AWS sessions.

This package does not import MXNet. A fork server imports MXNet once and forks *blanks*: processes that wait for a role.
A fork takes milliseconds, so forming a group, even twice in a row, waits for no import. The import starts no thread, so
the fork is safe. If the server dies, its blanks and their successors die too, and the job restarts.
"""
