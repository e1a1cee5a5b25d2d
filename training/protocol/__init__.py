"""Messages between coordinator, node supervisors and workers, and the connections that carry these messages.

Messages are sent over TLS 1.3. Peers trust only the coordinator's own certificate, which they read from SSM. Each
coordinator process makes a new certificate and a new token. On each connection the coordinator first sends a nonce (a
fresh random value). The peer answers the nonce with a hello, which contains a hash of the nonce, keyed by the token. So
the token is never sent, and a recorded hello is useless on another connection. Messages are typed, versioned and of
bounded size. An order names its generation (the group of workers between two changes of the membership), and has no
effect in any other generation.

Each hello contains the signed EC2 instance identity document of its sender. With `identity_keys` the document's
signature is verified, and the document must name the hello's sender. Without keys (the mode *unverified*) any holder of
the cluster's token is trusted. An identity document is valid as long as its instance exists, so whoever receives a
hello could use the hello's document again. On EC2, AWS's public keys for the region verify the documents, unless the
node's configuration names different keys.
"""
