"""Messages between coordinator, node supervisors and workers, and the transport of these messages.

The transport is TLS 1.3 with the coordinator's certificate pinned through SSM; each coordinator process has a new
certificate and token. The coordinator first sends a nonce. The peer answers with a hello, which has a hash of the
nonce, keyed by the token. So the token is never sent, and a recorded hello is useless on another connection. Messages
are typed, versioned and of bounded size. An order names its generation (the group of workers between two changes of the
membership), and has no effect in any other generation.

Hellos carry the signed instance identity document. With `identity_keys` the document's signature is verified, and the
document must name the hello's sender. Without keys (the mode *unverified*) any holder of the cluster's token is
trusted. A document is valid as long as its instance lives, so the receiver of a hello could replay its document. On EC2
the keys are AWS's for the region, unless the node's configuration names different keys.
"""
