"""Messages between coordinator, node supervisors and workers, and how they travel. The three have no other interface.

The transport is TLS 1.3 with the coordinator's certificate pinned through SSM; each coordinator process has a new
certificate and token. The coordinator opens with a nonce and the hello answers with a keyed hash by the token, so no
token is sent and no recorded hello opens another connection. Messages are bounded, versioned and typed; orders carry
their generation, and those of another generation change nothing.

Hellos carry the signed instance identity document. With `identity_keys` its signature is verified and it must name the
sender; without keys the mode is *unverified*: any holder of the cluster's token is trusted. A document is valid as long
as its instance lives, so whoever receives hellos could replay one. On EC2 the keys are AWS's for the region, unless the
node's configuration has others.
"""
