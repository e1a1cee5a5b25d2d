"""What coordinator, node supervisors and workers say to each other, and over what. They meet nowhere else.

TLS 1.3 with the coordinator's certificate pinned through SSM; certificate and token are new with every coordinator
process. The coordinator opens with a nonce and the hello answers with a keyed hash by the token, so no token crosses
the wire and no recorded hello opens another connection. Messages are bounded, versioned and typed; orders carry their
generation, and those of another generation change nothing.

Hellos carry the signed instance identity document. With `identity_keys` its signature is verified and it must name the
sender; without keys the mode is *unverified*: whoever has the cluster's token is taken at its word. A document is valid
as long as its instance lives, so whoever gets hellos could replay one. On EC2 the keys are AWS's, of the region, unless
the node's configuration has others.
"""
