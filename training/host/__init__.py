"""What outlives a worker on its host: memory, fork servers, spare processes, the reaper; and the way to AWS. No MXNet.

A fork server imports MXNet once and forks *blanks* in milliseconds, which wait for a role: neither a formation nor the
one right after it waits for an import, and training pays for none. MXNet's import starts no thread, so the fork is
safe. The price: the server's death takes its blanks along, those that serve too, and the job restarts.
"""
