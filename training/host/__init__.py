"""What outlives a worker on its host: memory, fork servers, spare processes, the reaper; and the session for AWS.

No MXNet here. A fork server imports MXNet once and forks *blanks* in milliseconds, which wait for a role: so forming a
group, even twice in a row, waits for no import. The import starts no thread, so the fork is safe. But if the server
dies, its blanks and the processes made from them die too, and the job restarts.
"""
